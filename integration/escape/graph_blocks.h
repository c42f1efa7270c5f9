// GraphBlocks: the memory that the launch of an executable graph names. A launch shows none of it. It is
// recorded while a graph is captured or built, and handed on to everything that is made of the graph. Memory
// is recorded as address ranges, as the nodes name it; the blocks that lie there are looked up at each
// launch. A graph that was not seen from its beginning counts as unknown, and its launches need every block.
// The hooks of the graph functions call this on any thread. No call fails.

#ifndef SPILLWAY_INTEGRATION_ESCAPE_GRAPH_BLOCKS_H_
#define SPILLWAY_INTEGRATION_ESCAPE_GRAPH_BLOCKS_H_

#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/residency/residency.h"
#include "io/os/sync.h"

namespace spillway::integration {

class GraphBlocks {
 public:
  using Range = allocator::BlockRange;
  using Ranges = std::vector<Range>;

  // ---- Captures in progress.

  // Returns whether all that is known of the capture with this id reaches the graph that the capture becomes.
  // Blocks that are added to any other capture must be pinned. False for 0, a capture without an id.
  bool Follows(uint64_t capture) const;
  // Records that the capture becomes no graph that is seen. 0 stands for a capture whose id the driver did
  // not give: no capture is followed from then on.
  void LoseCapture(uint64_t capture);
  void AddToCapture(uint64_t capture, const Ranges& ranges);
  // Records that `exec` was launched on a stream that is being captured: its nodes become part of the
  // capture.
  void AddExecToCapture(uint64_t capture, CUgraphExec exec);
  // Records that the capture adds to a graph that existed before. 0: as for LoseCapture.
  void CaptureInto(uint64_t capture, CUgraph graph);
  // Records that the capture makes all nodes of `graph` anew. The names of the old nodes count until the
  // capture has succeeded.
  void Recapture(uint64_t capture, CUgraph graph);
  // Records that the capture has become `graph`, or has failed if `graph` is null.
  void EndCapture(uint64_t capture, CUgraph graph);

  // ---- Graphs.

  // Returns whether everything that the graph names is known and reaches what is made of the graph.
  bool Follows(CUgraph graph) const;
  // Records that the driver has just made `graph`. An earlier graph with this handle has ended unseen, inside
  // another graph.
  void RecordMade(CUgraph graph);
  void AddToGraph(CUgraph graph, const Ranges& ranges);
  // Records that `node` of `graph` runs `body`, which it owns: the body of a conditional node, or a child
  // that was moved in. Everything that is added to the body, then or later, counts as the graph's.
  void AddBody(CUgraph graph, CUgraphNode node, CUgraph body);
  // Records that the driver gave out a graph that belongs to a node. Unless it is a body that is known, its
  // owner is unknown, and the graph is not followed.
  void RecordInner(CUgraph graph);
  // Records that the node is gone, and its bodies with it. The memory that they named stays with the graph.
  void DropNode(CUgraphNode node);
  // Records that a node of `graph`, or a copy of `graph`, now runs what `part` runs. Does nothing if `part`
  // is not known.
  void Include(CUgraph graph, CUgraph part);
  void DropGraph(CUgraph graph);
  // Returns what the graph names; empty for a graph of which nothing is known.
  Ranges BlocksOf(CUgraph graph) const;

  // ---- Executable graphs.

  // `by_device`: kernels may launch the graph, which nobody sees.
  void Instantiate(CUgraphExec exec, CUgraph graph, bool by_device);
  // Records that every node of `exec` now has the parameters of the same node of `graph`.
  void Update(CUgraphExec exec, CUgraph graph);
  // Records that one node of `exec` has other parameters, or another child graph.
  void SetNode(CUgraphExec exec, CUgraphNode node, const Ranges& ranges);
  void SetChild(CUgraphExec exec, CUgraphNode node, CUgraph child);
  bool LaunchedByDevice(CUgraphExec exec) const;
  // Calls visit(ranges, signature) with what a launch of `exec` names, in order of address, each address
  // once. Equal ranges have equal signatures. Returns false without a call if it is not known what the launch
  // names. `visit` runs under the lock.
  bool Visit(CUgraphExec exec, absl::FunctionRef<void(const Ranges&, uint64_t)> visit);
  void DropExec(CUgraphExec exec);

 private:
  using Map = std::map<CUdeviceptr, uint64_t>;  // size by start
  // The memory that something names. `known`: the ranges are all of it.
  struct Named {
    Map ranges;
    bool known = true;
    void Add(const Ranges& more);
    void Add(const Named& other);
  };
  struct Graph {
    Named named;
    Named before;                 // replaced once the recapture in progress has succeeded
    std::vector<CUgraph> bodies;  // owned by the graph's nodes
    bool inner = false;           // belongs to a node that is not known
  };
  struct Node {
    CUgraph graph;
    std::vector<CUgraph> bodies;
  };
  struct Exec {
    Named named;
    std::unordered_map<CUgraphNode, Named> nodes;  // nodes with parameters of their own
    bool by_device = false;
    // The sum of `named` and `nodes`, made at the first launch after a change.
    bool summed = false;
    Ranges all;
    uint64_t signature = 0;
    bool known = true;
    void Sum();
  };
  // Returns what the graph and, at any depth, its bodies name.
  Named CollectLocked(CUgraph graph) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropGraphLocked(CUgraph graph) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool FollowsLocked(CUgraph graph) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the record of `exec`. An executable graph that was not seen before gets a record of which nothing
  // is known.
  Exec& ExecLocked(CUgraphExec exec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable os::Mutex mu_{os::LockRank::kRegistry};
  std::unordered_map<uint64_t, Named> captures_ ABSL_GUARDED_BY(mu_);
  std::unordered_set<uint64_t> captures_into_ ABSL_GUARDED_BY(mu_);
  std::unordered_set<uint64_t> lost_captures_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<uint64_t, CUgraph> recaptures_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<CUgraph, Graph> graphs_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<CUgraphNode, Node> owners_ ABSL_GUARDED_BY(mu_);  // the nodes that own bodies
  std::unordered_map<CUgraphExec, Exec> execs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_GRAPH_BLOCKS_H_
