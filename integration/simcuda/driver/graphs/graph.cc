#include "integration/simcuda/driver/graphs/graph.h"

#include "integration/simcuda/driver/graphs/conditional.h"

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "integration/simcuda/driver/machine/handles.h"

namespace simcuda {
namespace {

enum class ObjectKind { kGraph, kNode, kExec };

// Every live object's address; guarded by GraphMutex.
std::unordered_map<const void*, ObjectKind>& Live() {
  static auto* live = new std::unordered_map<const void*, ObjectKind>;
  return *live;
}

template <typename Object, typename Handle>
Object* FindLive(Handle handle, ObjectKind kind) {
  static constexpr const char* kNames[] = {"a CUgraph", "a CUgraphNode", "a CUgraphExec"};
  const auto found = Live().find(handle);
  const bool live = found != Live().end();
  if (live && found->second == kind) return reinterpret_cast<Object*>(handle);
  const std::string is = live ? std::string("it is ") + kNames[static_cast<int>(found->second)]
                              : "no graph, node or executable graph that exists";
  BadHandle(handle, kNames[static_cast<int>(kind)], is.c_str(), CUDA_ERROR_INVALID_VALUE);
  return nullptr;
}

// The place of each node in a list.
std::unordered_map<const GraphNode*, size_t> Places(const std::vector<GraphNode*>& nodes) {
  std::unordered_map<const GraphNode*, size_t> places;
  for (size_t i = 0; i < nodes.size(); ++i) places[nodes[i]] = i;
  return places;
}

}  // namespace

std::mutex& GraphMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

Graph* Graph::Create() {
  auto* graph = new Graph;
  Live().emplace(graph, ObjectKind::kGraph);
  return graph;
}

Graph* Graph::FromHandle(CUgraph handle) { return FindLive<Graph>(handle, ObjectKind::kGraph); }

GraphNode* Graph::NodeFromHandle(CUgraphNode handle) {
  return FindLive<GraphNode>(handle, ObjectKind::kNode);
}

GraphNode* Graph::Add(OperationPtr operation, const std::vector<GraphNode*>& dependencies) {
  auto* node = new GraphNode;
  node->graph = this;
  node->operation = std::move(operation);
  node->dependencies = dependencies;
  nodes_.push_back(node);
  Live().emplace(node, ObjectKind::kNode);
  return node;
}

void Graph::Remove(GraphNode* node) {
  for (GraphNode* other : nodes_) std::erase(other->dependencies, node);
  std::erase(nodes_, node);
  DeleteNode(node);
}

void Graph::DeleteNode(GraphNode* node) {
  for (Graph* body : node->bodies) body->Destroy();
  Live().erase(node);
  delete node;
}

void Graph::AddBodies(GraphNode* node, unsigned int count) {
  for (unsigned int i = 0; i < count; ++i) {
    Graph* body = Create();
    body->is_body = true;
    node->bodies.push_back(body);
    node->body_handles.push_back(body->handle());
  }
}

Graph* Graph::Clone() const {
  Graph* clone = Create();
  const auto places = Places(nodes_);
  for (const GraphNode* node : nodes_) {
    GraphNode* copy = clone->Add(node->operation, {});
    copy->cloned_from = node;
    for (const Graph* body : node->bodies) {
      copy->bodies.push_back(body->Clone());
      copy->bodies.back()->is_body = true;
      copy->body_handles.push_back(copy->bodies.back()->handle());
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (const GraphNode* before : nodes_[i]->dependencies) {
      clone->nodes_[i]->dependencies.push_back(clone->nodes_[places.at(before)]);
    }
  }
  clone->user_objects = user_objects;
  RetainUserObjects(user_objects);
  return clone;
}

bool Graph::Sort(std::vector<GraphNode*>* sorted) const {
  const auto places = Places(nodes_);
  std::vector<size_t> missing(nodes_.size());  // dependencies that are not sorted yet
  std::vector<std::vector<size_t>> dependents(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    missing[i] = nodes_[i]->dependencies.size();
    for (const GraphNode* before : nodes_[i]->dependencies) dependents[places.at(before)].push_back(i);
  }
  std::vector<size_t> ready;  // a heap: the oldest first
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (missing[i] == 0) ready.push_back(i);
  }
  std::make_heap(ready.begin(), ready.end(), std::greater<>());
  sorted->clear();
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), std::greater<>());
    const size_t at = ready.back();
    ready.pop_back();
    sorted->push_back(nodes_[at]);
    for (const size_t dependent : dependents[at]) {
      if (--missing[dependent] != 0) continue;
      ready.push_back(dependent);
      std::push_heap(ready.begin(), ready.end(), std::greater<>());
    }
  }
  return sorted->size() == nodes_.size();
}

bool Graph::Reaches(const std::vector<GraphNode*>& from, const std::vector<GraphNode*>& all) {
  std::unordered_set<const GraphNode*> seen(from.begin(), from.end());
  std::vector<GraphNode*> open = from;
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    for (GraphNode* before : node->dependencies) {
      if (seen.insert(before).second) open.push_back(before);
    }
  }
  return std::all_of(all.begin(), all.end(),
                     [&seen](const GraphNode* node) { return seen.count(node) != 0; });
}

void Graph::Destroy() {
  ReleaseUserObjects(&user_objects);
  for (GraphNode* node : nodes_) DeleteNode(node);
  Live().erase(this);
  delete this;
}

namespace {

bool MayBeInBody(const Operation& operation) {
  switch (operation.type()) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return true;
    default: return false;
  }
}

// Returns the operation that an executable graph makes of the node; null when there is none. Appends the
// conditions at any depth.
OperationPtr Instantiated(const GraphNode& node, std::vector<uint64_t>* conditions) {
  const auto* conditional = dynamic_cast<const ConditionalOperation*>(node.operation.get());
  if (conditional == nullptr) return node.operation;
  conditions->push_back(conditional->condition());
  std::vector<std::vector<OperationPtr>> bodies;
  for (const Graph* body : node.bodies) {
    std::vector<GraphNode*> sorted;
    if (!body->Sort(&sorted)) return nullptr;
    std::vector<OperationPtr>& operations = bodies.emplace_back();
    for (const GraphNode* inner : sorted) {
      OperationPtr operation = MayBeInBody(*inner->operation) ? Instantiated(*inner, conditions) : nullptr;
      if (operation == nullptr) return nullptr;
      operations.push_back(std::move(operation));
    }
  }
  return MakeConditionalRun(*conditional, std::move(bodies));
}

}  // namespace

GraphExec* GraphExec::Create(const Graph& graph, unsigned long long flags) {
  std::vector<GraphNode*> sorted;
  if (!graph.Sort(&sorted)) return nullptr;
  auto* executable = new GraphExec;
  const auto places = Places(sorted);
  for (const GraphNode* node : sorted) {
    Step step = {node, Instantiated(*node, &executable->conditions_), true, {}};
    if (step.operation == nullptr) {
      delete executable;
      return nullptr;
    }
    for (const GraphNode* before : node->dependencies) step.dependencies.push_back(places.at(before));
    std::sort(step.dependencies.begin(), step.dependencies.end());
    executable->steps_.push_back(std::move(step));
  }
  executable->flags = flags;
  executable->user_objects = graph.user_objects;
  RetainUserObjects(graph.user_objects);
  Live().emplace(executable, ObjectKind::kExec);
  return executable;
}

GraphExec* GraphExec::FromHandle(CUgraphExec handle) {
  return FindLive<GraphExec>(handle, ObjectKind::kExec);
}

GraphExec::Step* GraphExec::FindStep(const GraphNode* node) {
  for (Step& step : steps_) {
    if (step.node == node) return &step;
  }
  return nullptr;
}

CUgraphExecUpdateResult GraphExec::Update(const Graph& graph, GraphNode** where) {
  std::vector<GraphNode*> sorted;
  *where = nullptr;
  if (!graph.Sort(&sorted) || sorted.size() != steps_.size())
    return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  const auto places = Places(sorted);
  for (size_t i = 0; i < sorted.size(); ++i) {
    *where = sorted[i];
    std::vector<size_t> dependencies;
    for (const GraphNode* before : sorted[i]->dependencies) dependencies.push_back(places.at(before));
    std::sort(dependencies.begin(), dependencies.end());
    if (dependencies != steps_[i].dependencies) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (sorted[i]->operation->type() != steps_[i].operation->type())
      return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  }
  *where = nullptr;
  std::vector<OperationPtr> operations;
  std::vector<uint64_t> conditions;
  for (const GraphNode* node : sorted) operations.push_back(Instantiated(*node, &conditions));
  if (std::find(operations.begin(), operations.end(), nullptr) != operations.end())
    return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  for (size_t i = 0; i < sorted.size(); ++i) steps_[i].operation = std::move(operations[i]);
  conditions_ = std::move(conditions);
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

std::vector<OperationPtr> GraphExec::Operations() const {
  std::vector<OperationPtr> operations;
  if (!conditions_.empty()) operations.push_back(MakeConditionReset(conditions_));
  for (const Step& step : steps_) {
    if (step.enabled) operations.push_back(step.operation);
  }
  return operations;
}

void GraphExec::Destroy() {
  ReleaseUserObjects(&user_objects);
  Live().erase(this);
  delete this;
}

CUresult ChildGraphOperation::Submit(Stream& stream) const {
  for (const OperationPtr& operation : operations_) {
    if (CUresult result = operation->Submit(stream); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace simcuda
