// Graphs: operations with their dependencies; and executable graphs: the same in an order that respects them.
// A handle is looked up in the set of live objects, so a stale one is seen. One lock covers all graphs
// (GraphMutex), since graphs are rarely made. A launch copies the list of operations out and queues them one
// after the other on the launch stream; parallel branches are not run in parallel.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_GRAPHS_GRAPH_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_GRAPHS_GRAPH_H_

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/execution/operation.h"

namespace simcuda {

class Graph;
struct UserObject;

struct GraphNode {
  Graph* graph = nullptr;
  OperationPtr operation;
  std::vector<GraphNode*> dependencies;    // no duplicates
  const GraphNode* cloned_from = nullptr;  // an address to compare with only
  std::vector<Graph*> bodies;              // of a conditional node, which owns them
  std::vector<CUgraph> body_handles;       // handles of the same; the application reads this array

  CUgraphNode handle() { return reinterpret_cast<CUgraphNode>(this); }
};

// Guards every graph, node, executable graph and user object.
std::mutex& GraphMutex();

// All functions below require the lock.
class Graph {
 public:
  static Graph* Create();
  static Graph* FromHandle(CUgraph handle);
  static GraphNode* NodeFromHandle(CUgraphNode handle);
  CUgraph handle() { return reinterpret_cast<CUgraph>(this); }

  GraphNode* Add(OperationPtr operation, const std::vector<GraphNode*>& dependencies);
  // Gives the node empty bodies.
  static void AddBodies(GraphNode* node, unsigned int count);
  void Remove(GraphNode* node);
  Graph* Clone() const;
  // Sorts the nodes into an order that respects all dependencies, with creation order as the second key.
  // Returns false on a cycle.
  bool Sort(std::vector<GraphNode*>* sorted) const;
  // Returns whether every node of `all` is one of `from` or comes before one.
  static bool Reaches(const std::vector<GraphNode*>& from, const std::vector<GraphNode*>& all);
  void Destroy();

  const std::vector<GraphNode*>& nodes() const { return nodes_; }
  std::map<UserObject*, unsigned> user_objects;  // references that the graph has
  bool is_body = false;                          // of a conditional node

 private:
  static void DeleteNode(GraphNode* node);

  std::vector<GraphNode*> nodes_;  // in order of creation
};

class GraphExec {
 public:
  struct Step {
    const GraphNode* node;  // of the source graph; for comparison only, since it may be gone
    OperationPtr operation;
    bool enabled;
    std::vector<size_t> dependencies;  // steps
  };

  // Returns null if the graph, or a body of one of its nodes, has a cycle, or a body has a node that bodies
  // may not have.
  static GraphExec* Create(const Graph& graph, unsigned long long flags);
  static GraphExec* FromHandle(CUgraphExec handle);
  CUgraphExec handle() { return reinterpret_cast<CUgraphExec>(this); }

  Step* FindStep(const GraphNode* node);
  // Takes the parameters of a graph of the same form; otherwise nothing changes and *where names the node.
  CUgraphExecUpdateResult Update(const Graph& graph, GraphNode** where);
  // Returns the operations of a launch, in order.
  std::vector<OperationPtr> Operations() const;
  void Destroy();

  unsigned long long flags = 0;
  std::map<UserObject*, unsigned> user_objects;

 private:
  std::vector<Step> steps_;
  std::vector<uint64_t> conditions_;  // of its conditional nodes, at any depth
};

// A graph's launch inside another graph.
class ChildGraphOperation : public Operation {
 public:
  explicit ChildGraphOperation(std::vector<OperationPtr> operations) : operations_(std::move(operations)) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_GRAPH; }
  CUresult Submit(Stream& stream) const override;

 private:
  const std::vector<OperationPtr> operations_;
};

class EmptyOperation : public Operation {
 public:
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_EMPTY; }
  CUresult Submit(Stream&) const override { return CUDA_SUCCESS; }
};

// References to user objects (user_object.cc).
void RetainUserObjects(const std::map<UserObject*, unsigned>& objects);
void ReleaseUserObjects(std::map<UserObject*, unsigned>* objects);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_GRAPHS_GRAPH_H_
