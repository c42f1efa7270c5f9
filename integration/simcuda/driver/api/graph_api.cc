// Driver functions: graphs as a whole, their form, and executable graphs. Nodes' parameters are in
// graph_node_api.cc.
#include <algorithm>
#include <cstdio>

#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/graphs/capture.h"
#include "integration/simcuda/driver/graphs/conditional.h"
#include "integration/simcuda/driver/graphs/graph.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/machine/hardware_time.h"

namespace simcuda {
namespace {

using Lock = std::lock_guard<std::mutex>;

// Copies up to *count handles out, or returns their number; the rest of a longer array becomes null.
template <typename Handle>
CUresult Give(const std::vector<Handle>& all, Handle* handles, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (handles != nullptr) {
    for (size_t i = 0; i < *count; ++i) handles[i] = i < all.size() ? all[i] : Handle{};
    *count = std::min(*count, all.size());
  } else {
    *count = all.size();
  }
  return CUDA_SUCCESS;
}

// Calls with the lock held and the graph of the handle.
template <typename Call>
CUresult WithGraph(CUgraph handle, const Call& call) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const Lock lock(GraphMutex());
  Graph* graph = Graph::FromHandle(handle);
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : call(*graph);
}
template <typename Call>
CUresult WithNode(CUgraphNode handle, const Call& call) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const Lock lock(GraphMutex());
  GraphNode* node = Graph::NodeFromHandle(handle);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE : call(*node);
}
template <typename Call>
CUresult WithExec(CUgraphExec handle, const Call& call) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const Lock lock(GraphMutex());
  GraphExec* executable = GraphExec::FromHandle(handle);
  return executable == nullptr ? CUDA_ERROR_INVALID_VALUE : call(*executable);
}

CUresult GetNodes(CUgraph handle, bool roots_only, CUgraphNode* nodes, size_t* count) {
  return WithGraph(handle, [&](Graph& graph) {
    std::vector<CUgraphNode> all;
    for (GraphNode* node : graph.nodes()) {
      if (!roots_only || node->dependencies.empty()) all.push_back(node->handle());
    }
    return Give(all, nodes, count);
  });
}

CUresult GetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  return WithGraph(handle, [&](Graph& graph) {
    std::vector<CUgraphNode> before;
    std::vector<CUgraphNode> after;
    for (GraphNode* node : graph.nodes()) {
      for (GraphNode* dependency : node->dependencies) {
        before.push_back(dependency->handle());
        after.push_back(node->handle());
      }
    }
    if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    size_t space = *count;
    if (from != nullptr && data != nullptr)
      std::fill_n(data, std::min(space, before.size()), CUgraphEdgeData{});
    Give(before, from, &space);
    return Give(after, to, count);
  });
}

CUresult GetDependencies(CUgraphNode handle, bool dependents, CUgraphNode* nodes, CUgraphEdgeData* data,
                         size_t* count) {
  return WithNode(handle, [&](GraphNode& node) {
    std::vector<CUgraphNode> all;
    for (GraphNode* other : dependents ? node.graph->nodes() : node.dependencies) {
      const auto& of_other = other->dependencies;
      if (!dependents || std::find(of_other.begin(), of_other.end(), &node) != of_other.end())
        all.push_back(other->handle());
    }
    if (count != nullptr && nodes != nullptr && data != nullptr)
      std::fill_n(data, std::min(*count, all.size()), CUgraphEdgeData{});
    return Give(all, nodes, count);
  });
}

CUresult ChangeDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, size_t count,
                            bool add) {
  return WithGraph(handle, [&](Graph& graph) {
    if (count != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    for (const bool change : {false, true}) {  // all are checked before any is changed
      for (size_t i = 0; i < count; ++i) {
        GraphNode* before = Graph::NodeFromHandle(from[i]);
        GraphNode* after = Graph::NodeFromHandle(to[i]);
        if (before == nullptr || after == nullptr || before->graph != &graph || after->graph != &graph ||
            before == after) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        auto& edges = after->dependencies;
        const bool there = std::find(edges.begin(), edges.end(), before) != edges.end();
        if (!change && there == add) return CUDA_ERROR_INVALID_VALUE;
        if (!change) continue;
        std::erase(edges, before);
        if (add) edges.push_back(before);
      }
    }
    return CUDA_SUCCESS;
  });
}

CUresult Instantiate(CUgraphExec* handle, CUgraph graph_handle, unsigned long long flags) {
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  constexpr unsigned long long kKnown =
      CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
      CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (handle == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return WithGraph(graph_handle, [&](Graph& graph) {
    GraphExec* executable = GraphExec::Create(graph, flags);
    if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *handle = executable->handle();
    return CUDA_SUCCESS;
  });
}

template <Form kForm>
CUresult InstantiateWithParams(CUgraphExec* handle, CUgraph graph,
                               CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  parameters->hErrNode_out = nullptr;
  const CUresult result = Instantiate(handle, graph, parameters->flags);
  parameters->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

// Queues the operations one after the other; several threads' launches of one graph on one stream do not mix.
template <Form kForm>
CUresult LaunchGraph(CUgraphExec handle, CUstream stream_handle) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(stream_handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  std::vector<OperationPtr> operations;
  const CUresult found = WithExec(handle, [&](const GraphExec& executable) {
    operations = executable.Operations();
    return CUDA_SUCCESS;
  });
  bool capturing = false;
  if (found != CUDA_SUCCESS) return found;
  if (CUresult result = EnterQueueing(*stream, &capturing); result != CUDA_SUCCESS) return result;
  const uint64_t nodes = operations.size();
  const auto whole = std::make_shared<ChildGraphOperation>(std::move(operations));
  if (capturing) return RecordOperation(*stream, whole);
  CallTime time(Call::kGraphLaunch);
  time.Spend(nodes);
  static auto* one_at_a_time = new std::mutex;
  const Lock lock(*one_at_a_time);
  return whole->Submit(*stream);
}

// Does nothing, since the stand-in prepares nothing on a device before the first launch.
template <Form kForm>
CUresult Upload(CUgraphExec handle, CUstream stream_handle) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(stream_handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  return WithExec(handle, [](GraphExec&) { return CUDA_SUCCESS; });
}

CUresult UpdateExec(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = {};
  return WithExec(handle, [&](GraphExec& executable) {
    const Graph* graph = Graph::FromHandle(graph_handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    GraphNode* where = nullptr;
    info->result = executable.Update(*graph, &where);
    info->errorNode = where == nullptr ? nullptr : where->handle();
    return info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  });
}

CUresult WriteDot(const Graph& graph, const char* path) {
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::fprintf(file, "digraph simcuda {\n");
  for (const GraphNode* node : graph.nodes()) {
    std::fprintf(file, "  \"%p\" [label=\"type %d\"];\n", static_cast<const void*>(node),
                 static_cast<int>(node->operation->type()));
    for (const GraphNode* before : node->dependencies)
      std::fprintf(file, "  \"%p\" -> \"%p\";\n", static_cast<const void*>(before),
                   static_cast<const void*>(node));
  }
  std::fprintf(file, "}\n");
  return std::fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace
}  // namespace simcuda

using simcuda::Graph;
using simcuda::GraphExec;
using simcuda::GraphNode;

SIMCUDA_API CUresult cuGraphCreate(CUgraph* handle, unsigned int flags) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(simcuda::GraphMutex());
  *handle = Graph::Create()->handle();
  return CUDA_SUCCESS;
}
SIMCUDA_API CUresult cuGraphDestroy(CUgraph handle) {
  return simcuda::WithGraph(handle, [](Graph& graph) {
    if (graph.is_body) return CUDA_ERROR_INVALID_VALUE;  // its node owns it
    graph.Destroy();
    return CUDA_SUCCESS;
  });
}
SIMCUDA_API CUresult cuGraphClone(CUgraph* clone, CUgraph original) {
  if (clone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return simcuda::WithGraph(original, [clone](const Graph& graph) {
    *clone = graph.Clone()->handle();
    return CUDA_SUCCESS;
  });
}
SIMCUDA_API CUresult cuGraphNodeFindInClone(CUgraphNode* found, CUgraphNode original, CUgraph clone) {
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return simcuda::WithGraph(clone, [&](const Graph& graph) {
    for (GraphNode* node : graph.nodes()) {
      if (node->cloned_from != reinterpret_cast<GraphNode*>(original)) continue;
      *found = node->handle();
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}
SIMCUDA_API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return simcuda::GetNodes(graph, false, nodes, count);
}
SIMCUDA_API CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return simcuda::GetNodes(graph, true, nodes, count);
}
SIMCUDA_API CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return simcuda::GetEdges(graph, from, to, nullptr, count);
}
SIMCUDA_API CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                                        CUgraphEdgeData* data, size_t* count) {
  return simcuda::GetEdges(graph, from, to, data, count);
}
SIMCUDA_API CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return simcuda::GetDependencies(node, false, nodes, nullptr, count);
}
SIMCUDA_API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes,
                                                   CUgraphEdgeData* data, size_t* count) {
  return simcuda::GetDependencies(node, false, nodes, data, count);
}
SIMCUDA_API CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return simcuda::GetDependencies(node, true, nodes, nullptr, count);
}
SIMCUDA_API CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes,
                                                     CUgraphEdgeData* data, size_t* count) {
  return simcuda::GetDependencies(node, true, nodes, data, count);
}
SIMCUDA_API CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                            size_t count) {
  return simcuda::ChangeDependencies(graph, from, to, count, true);
}
SIMCUDA_API CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                               const CUgraphEdgeData*, size_t count) {
  return simcuda::ChangeDependencies(graph, from, to, count, true);
}
SIMCUDA_API CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                               size_t count) {
  return simcuda::ChangeDependencies(graph, from, to, count, false);
}
SIMCUDA_API CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                                  const CUgraphNode* to, const CUgraphEdgeData*,
                                                  size_t count) {
  return simcuda::ChangeDependencies(graph, from, to, count, false);
}
SIMCUDA_API CUresult cuGraphDestroyNode(CUgraphNode handle) {
  return simcuda::WithNode(handle, [](GraphNode& node) {
    node.graph->Remove(&node);
    return CUDA_SUCCESS;
  });
}
SIMCUDA_API CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return simcuda::WithNode(handle, [type](const GraphNode& node) {
    *type = node.operation->type();
    return CUDA_SUCCESS;
  });
}
SIMCUDA_API CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned int) {
  return simcuda::WithGraph(handle, [path](const Graph& graph) { return simcuda::WriteDot(graph, path); });
}

SIMCUDA_API CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                                        size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes != 0) *log = '\0';
  return simcuda::Instantiate(exec, graph, 0);
}
SIMCUDA_API CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node,
                                           char* log, size_t log_bytes) {
  return cuGraphInstantiate(exec, graph, error_node, log, log_bytes);
}
SIMCUDA_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return simcuda::Instantiate(exec, graph, flags);
}
SIMCUDA_BOTH_FORMS(cuGraphInstantiateWithParams, _ptsz, simcuda::InstantiateWithParams,
                   (CUgraphExec * e, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS* p), (e, g, p))
SIMCUDA_BOTH_FORMS(cuGraphLaunch, _ptsz, simcuda::LaunchGraph, (CUgraphExec e, CUstream s), (e, s))
SIMCUDA_BOTH_FORMS(cuGraphUpload, _ptsz, simcuda::Upload, (CUgraphExec e, CUstream s), (e, s))

SIMCUDA_API CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return simcuda::WithExec(handle, [](GraphExec& executable) {
    executable.Destroy();
    return CUDA_SUCCESS;
  });
}
SIMCUDA_API CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return simcuda::WithExec(handle, [flags](const GraphExec& executable) {
    *flags = executable.flags;
    return CUDA_SUCCESS;
  });
}
SIMCUDA_API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                                       CUgraphExecUpdateResult* update) {
  CUgraphExecUpdateResultInfo info;
  const CUresult result = simcuda::UpdateExec(exec, graph, &info);
  if (error_node != nullptr) *error_node = info.errorNode;
  if (update != nullptr) *update = info.result;
  return result;
}
SIMCUDA_API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                          CUgraphExecUpdateResultInfo* info) {
  return simcuda::UpdateExec(exec, graph, info);
}
SIMCUDA_API CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled) {
  return simcuda::WithExec(exec, [&](GraphExec& executable) {
    GraphExec::Step* step = executable.FindStep(reinterpret_cast<GraphNode*>(node));
    if (step == nullptr) return CUDA_ERROR_INVALID_VALUE;
    step->enabled = enabled != 0;
    return CUDA_SUCCESS;
  });
}
SIMCUDA_API CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int* enabled) {
  return simcuda::WithExec(exec, [&](GraphExec& executable) {
    const GraphExec::Step* step = executable.FindStep(reinterpret_cast<GraphNode*>(node));
    if (step == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *enabled = step->enabled ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

SIMCUDA_API CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph,
                                                    CUcontext, unsigned int value, unsigned int flags) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard<std::mutex> lock(simcuda::GraphMutex());
  if (handle == nullptr || simcuda::Graph::FromHandle(graph) == nullptr ||
      flags > CU_GRAPH_COND_ASSIGN_DEFAULT)
    return CUDA_ERROR_INVALID_VALUE;
  *handle = simcuda::MakeCondition(value, flags == CU_GRAPH_COND_ASSIGN_DEFAULT);
  return CUDA_SUCCESS;
}
