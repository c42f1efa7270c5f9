// GraphBlocks: the memory that the launch of an executable graph names. A launch shows none of it, so it is
// noted while a graph is captured or put together, and handed on to whatever is made of the graph. Blocks are
// known by their addresses, as the nodes know them: which block lies there is asked at each launch. Of a
// graph that was not seen from its beginning nothing counts as known, and whoever launches it needs every
// block. Called by the hooks of the graph functions, on any thread. Nothing fails.

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

  // ---- While something is captured.

  // Whether all that is known of the capture with that id gets to the graph that it becomes. What is added to
  // another must be pinned. False for 0, a capture without an id.
  bool Follows(uint64_t capture) const;
  // It becomes no graph that is seen. 0, where the driver gives no answer: no capture is followed from now
  // on.
  void LoseCapture(uint64_t capture);
  void AddToCapture(uint64_t capture, const Ranges& ranges);
  // `exec` was launched on a stream that is captured: its nodes are part of the capture.
  void AddExecToCapture(uint64_t capture, CUgraphExec exec);
  // The capture adds to a graph that was there before. 0: as for LoseCapture.
  void CaptureInto(uint64_t capture, CUgraph graph);
  // It makes all nodes of `graph` anew: what they name now counts until the capture has succeeded.
  void Recapture(uint64_t capture, CUgraph graph);
  // The capture has become `graph`; null: it failed.
  void EndCapture(uint64_t capture, CUgraph graph);

  // ---- Graphs.

  // Whether all that the graph names is known, and gets to what is made of it.
  bool Follows(CUgraph graph) const;
  // The driver has just made `graph`: an earlier one of that handle has ended unseen, inside another.
  void NoteMade(CUgraph graph);
  void AddToGraph(CUgraph graph, const Ranges& ranges);
  // `node` of `graph` runs `body`, which it owns: the body of a conditional node, or a child that was moved
  // in. Whatever is added to the body, then or later, counts as the graph's.
  void AddBody(CUgraph graph, CUgraphNode node, CUgraph body);
  // The driver gave out a graph that belongs to a node. If it is no body that is known, nobody knows whose.
  void NoteInner(CUgraph graph);
  // The node is gone, and its bodies with it. What they named stays with the graph.
  void DropNode(CUgraphNode node);
  // A node of `graph`, or a copy of `graph`, now runs what `part` runs. Nothing for one that is not known.
  void Include(CUgraph graph, CUgraph part);
  void DropGraph(CUgraph graph);
  // What the graph names; empty for one of which nothing is known.
  Ranges BlocksOf(CUgraph graph) const;

  // ---- Executable graphs.

  // `by_device`: kernels may launch it, which nobody sees.
  void Instantiate(CUgraphExec exec, CUgraph graph, bool by_device);
  // Every node of `exec` now has the parameters of the same node of `graph`.
  void Update(CUgraphExec exec, CUgraph graph);
  // One node of `exec` has other parameters, or another child graph.
  void SetNode(CUgraphExec exec, CUgraphNode node, const Ranges& ranges);
  void SetChild(CUgraphExec exec, CUgraphNode node, CUgraph child);
  bool LaunchedByDevice(CUgraphExec exec) const;
  // Calls visit(ranges, signature) with what a launch of `exec` names, in order of address, each address
  // once. The signature is equal for equal ranges. False, without a call: it is not known. The lock is held.
  bool Visit(CUgraphExec exec, absl::FunctionRef<void(const Ranges&, uint64_t)> visit);
  void DropExec(CUgraphExec exec);

 private:
  using Map = std::map<CUdeviceptr, uint64_t>;  // size by start
  // What something names. `known`: that is all of it.
  struct Named {
    Map ranges;
    bool known = true;
    void Add(const Ranges& more);
    void Add(const Named& other);
  };
  struct Graph {
    Named named;
    Named before;                 // a recapture under way will have replaced these
    std::vector<CUgraph> bodies;  // owned by its nodes
    bool inner = false;           // of a node that is not known
  };
  struct Node {
    CUgraph graph;
    std::vector<CUgraph> bodies;
  };
  struct Exec {
    Named named;
    std::unordered_map<CUgraphNode, Named> nodes;  // with parameters of their own
    bool by_device = false;
    // Of both, made at the first launch after a change.
    bool summed = false;
    Ranges all;
    uint64_t signature = 0;
    bool known = true;
    void Sum();
  };
  // What the graph and, at any depth, its bodies name.
  Named CollectLocked(CUgraph graph) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropGraphLocked(CUgraph graph) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool FollowsLocked(CUgraph graph) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of an executable graph that is not known nothing is known from then on either.
  Exec& ExecLocked(CUgraphExec exec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable os::Mutex mu_{os::LockRank::kRegistry};
  std::unordered_map<uint64_t, Named> captures_ ABSL_GUARDED_BY(mu_);
  std::unordered_set<uint64_t> captures_into_ ABSL_GUARDED_BY(mu_);
  std::unordered_set<uint64_t> lost_captures_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<uint64_t, CUgraph> recaptures_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<CUgraph, Graph> graphs_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<CUgraphNode, Node> owners_ ABSL_GUARDED_BY(mu_);  // nodes with bodies
  std::unordered_map<CUgraphExec, Exec> execs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_GRAPH_BLOCKS_H_
