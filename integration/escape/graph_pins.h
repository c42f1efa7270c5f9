// GraphHolds: which pins belong to which graph, executable graph or capture under way, and when they end. A
// launch of a graph names no block, so everything its nodes name stays while the graph or anything made from
// it exists. Called by the hooks of the graph functions, on any thread. Nothing fails: taking and ending pins
// is the caller's business.

#ifndef SPILLWAY_INTEGRATION_ESCAPE_GRAPH_PINS_H_
#define SPILLWAY_INTEGRATION_ESCAPE_GRAPH_PINS_H_

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/memory/pin.h"
#include "integration/escape/pins.h"
#include "io/os/sync.h"

namespace spillway::integration {

class GraphHolds {
 public:
  // Holds whose last owner is gone, and the streams that their graphs were launched on.
  using Ended = std::vector<std::pair<HoldTicket, allocator::HiddenUsers>>;

  // ---- While something is captured.
  void AddToCapture(uint64_t capture, HoldTicket ticket);
  // The capture has become `graph`; null: it came to nothing.
  void EndCapture(uint64_t capture, CUgraph graph, Ended* ended);

  // ---- Graphs.
  void AddToGraph(CUgraph graph, HoldTicket ticket);
  // A node of `graph`, or a copy of it, now runs what `part` runs.
  void Include(CUgraph graph, CUgraph part);
  void DropGraph(CUgraph graph, Ended* ended);

  // ---- Executable graphs.
  void Instantiate(CUgraphExec exec, CUgraph graph, Ended* ended);
  // Every node of `exec` now has the parameters of `graph`'s.
  void Update(CUgraphExec exec, CUgraph graph, Ended* ended);
  // One node of it has others; what it had before may still run.
  void SetNode(CUgraphExec exec, CUgraphNode node, HoldTicket ticket, Ended* ended);
  void SetChild(CUgraphExec exec, CUgraphNode node, CUgraph child, Ended* ended);
  void NoteLaunch(CUgraphExec exec, allocator::StreamRef stream);
  void DropExec(CUgraphExec exec, Ended* ended);

  // The stream is about to be destroyed: what was launched on it must be stamped now. Visits the tickets'
  // blocks.
  void ForgetStream(CUstream stream, std::vector<HoldTicket>* launched);

 private:
  struct Holds {
    HoldTicket ticket;
    allocator::HiddenUsers users;  // of executable graphs that are gone
  };
  using List = std::vector<std::shared_ptr<Holds>>;
  struct Exec {
    List holds;
    std::unordered_map<CUgraphNode, List> nodes;  // with parameters of their own
    std::vector<allocator::StreamRef> streams;    // launched on
  };
  static void Release(List list, const std::vector<allocator::StreamRef>& streams, Ended* ended);

  os::Mutex mu_{os::LockRank::kRegistry};
  std::unordered_map<uint64_t, List> captures_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<CUgraph, List> graphs_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<CUgraphExec, Exec> execs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_GRAPH_PINS_H_
