// GraphPins: which long-term pins belong to which graph, executable graph or capture under way, and when they
// end. A launch of a graph names no block. So everything that its nodes name stays on the GPU while the
// graph, or anything made from it, exists. Called by the hooks of the graph functions, on any thread. Nothing
// fails: the callers take and end the pins themselves.

#ifndef SPILLWAY_INTEGRATION_ESCAPE_GRAPH_PINS_H_
#define SPILLWAY_INTEGRATION_ESCAPE_GRAPH_PINS_H_

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/memory/pin.h"
#include "integration/escape/pins.h"
#include "io/os/sync.h"

namespace spillway::integration {

class GraphPins {
 public:
  // Pins whose last owner is gone, with the streams on which their graphs were launched. The caller ends
  // them.
  using Ended = std::vector<std::pair<PinTicket, allocator::EscapedUsers>>;

  // ---- While something is captured.
  // `ticket` belongs to the capture with that id.
  void AddToCapture(uint64_t capture, PinTicket ticket);
  // The capture has become `graph`, which gets its pins; null: the capture failed.
  void EndCapture(uint64_t capture, CUgraph graph, Ended* ended);
  // `exec` was launched on a stream that is captured: its nodes are part of the capture. Of one whose id nobody tells the
  // end is not seen, and its pins last until blocks are freed.
  static constexpr uint64_t kUntoldCapture = UINT64_MAX;
  void AddExecToCapture(uint64_t capture, CUgraphExec exec);
  // The capture adds to a graph that was there before.
  void NoteCaptureInto(uint64_t capture);
  // It makes all nodes of `graph` anew: the pins that it has now end when the capture has succeeded.
  void Recapture(uint64_t capture, CUgraph graph);

  // ---- Graphs.
  // The driver has just made `graph`: an earlier one of that handle may have ended inside another.
  void NoteMade(CUgraph graph);
  // `ticket` belongs to the graph. Where it is not known whose graph that is, the pins last until their blocks
  // are freed.
  void AddToGraph(CUgraph graph, PinTicket ticket);
  // `node` of `graph` runs `body`, which it owns: the body of a conditional node, or a child that was moved in.
  // Whatever is added to the body, then or later, counts as the graph's.
  void AddBody(CUgraph graph, CUgraphNode node, CUgraph body);
  // The driver gave out a graph that belongs to a node. If it is no body that is known, nobody knows whose.
  void NoteInner(CUgraph graph);
  // The node is gone, and its bodies with it. What they pinned stays with the graph.
  void DropNode(CUgraphNode node);
  // A node of `graph`, or a copy of `graph`, now runs what `part` runs: both own the pins of `part`. A `graph`
  // of null keeps them as long as the process.
  void Include(CUgraph graph, CUgraph part);
  void DropGraph(CUgraph graph, Ended* ended);

  // ---- Executable graphs.
  void Instantiate(CUgraphExec exec, CUgraph graph, Ended* ended);
  // Every node of `exec` now has the parameters of the same node of `graph`.
  void Update(CUgraphExec exec, CUgraph graph, Ended* ended);
  // One node of `exec` has other parameters, or another child graph; what it had before may still run.
  void SetNode(CUgraphExec exec, CUgraphNode node, PinTicket ticket, Ended* ended);
  void SetChild(CUgraphExec exec, CUgraphNode node, CUgraph child, Ended* ended);
  // `exec` is about to be launched on `stream`, where its blocks are in use until their pins end.
  void NoteLaunch(CUgraphExec exec, allocator::StreamRef stream);
  void DropExec(CUgraphExec exec, Ended* ended);

  // The stream is about to be destroyed. Appends the pins of what was launched on it to `launched`: the
  // caller must record these uses now.
  void ForgetStream(CUstream stream, std::vector<PinTicket>* launched);

 private:
  struct Pins {
    PinTicket ticket;
    allocator::EscapedUsers users;  // of executable graphs that are gone
  };
  using List = std::vector<std::shared_ptr<Pins>>;
  struct Exec {
    List pins;
    std::unordered_map<CUgraphNode, List> nodes;  // with parameters of their own
    std::vector<allocator::StreamRef> streams;    // launched on
  };
  struct Graph {
    List pins;
    List before;                  // a recapture under way will have replaced these
    std::vector<CUgraph> bodies;  // owned by its nodes
    bool inner = false;           // of a node that is not known
  };
  struct Node {
    CUgraph graph;
    std::vector<CUgraph> bodies;
  };
  static void Release(List list, const std::vector<allocator::StreamRef>& streams, Ended* ended);
  // The pins of the graph and, at any depth, of its bodies.
  void CollectLocked(CUgraph graph, List* list) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropGraphLocked(CUgraph graph, Ended* ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  os::Mutex mu_{os::LockRank::kRegistry};
  std::unordered_map<uint64_t, List> captures_ ABSL_GUARDED_BY(mu_);
  std::unordered_set<uint64_t> captures_into_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<uint64_t, CUgraph> recaptures_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<CUgraph, Graph> graphs_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<CUgraphNode, Node> owners_ ABSL_GUARDED_BY(mu_);  // nodes with bodies
  std::unordered_map<CUgraphExec, Exec> execs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_GRAPH_PINS_H_
