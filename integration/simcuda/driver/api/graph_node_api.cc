// Driver functions: making nodes by hand, and reading and setting nodes' parameters, in a graph or an
// executable one.
#include "integration/simcuda/driver/copies/copy.h"
#include "integration/simcuda/driver/graphs/conditional.h"
#include "integration/simcuda/driver/graphs/graph.h"
#include "integration/simcuda/driver/kernels/launch.h"
#include "integration/simcuda/driver/machine/driver.h"

namespace simcuda {
namespace {

using Lock = std::lock_guard<std::mutex>;

// `bodies`: of a conditional node, which the application then finds at *given.
CUresult AddNode(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies, size_t count,
                 OperationPtr operation, unsigned int bodies = 0, CUgraph** given = nullptr) {
  const Lock lock(GraphMutex());
  Graph* graph = Graph::FromHandle(graph_handle);
  if (handle == nullptr || graph == nullptr || (count != 0 && dependencies == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> before;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = Graph::NodeFromHandle(dependencies[i]);
    if (node == nullptr || node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    for (const GraphNode* other : before) {
      if (other == node) return CUDA_ERROR_INVALID_VALUE;
    }
    before.push_back(node);
  }
  GraphNode* const node = graph->Add(std::move(operation), before);
  *handle = node->handle();
  Graph::AddBodies(node, bodies);
  if (given != nullptr) *given = node->body_handles.data();
  return CUDA_SUCCESS;
}

// The operation of a node, as its kind; null when it is of another.
template <typename Kind>
std::shared_ptr<const Kind> OperationOf(CUgraphNode handle) {
  const Lock lock(GraphMutex());
  const GraphNode* node = Graph::NodeFromHandle(handle);
  return node == nullptr ? nullptr : std::dynamic_pointer_cast<const Kind>(node->operation);
}

// Replaces the operation of a node, in its graph or (exec not null) in the executable one only; the types
// must agree. The old one is let go outside the lock: its release is the application's code.
CUresult Replace(CUgraphExec exec, bool in_exec, CUgraphNode handle, OperationPtr operation) {
  const Lock lock(GraphMutex());
  OperationPtr* place = nullptr;
  if (in_exec) {
    GraphExec* executable = GraphExec::FromHandle(exec);
    GraphExec::Step* step =
        executable == nullptr ? nullptr : executable->FindStep(reinterpret_cast<GraphNode*>(handle));
    if (step != nullptr) place = &step->operation;
  } else if (GraphNode* node = Graph::NodeFromHandle(handle)) {
    place = &node->operation;
  }
  if (place == nullptr || (*place)->type() != operation->type()) return CUDA_ERROR_INVALID_VALUE;
  place->swap(operation);
  return CUDA_SUCCESS;
}

// The handle that a node names, of the kind of the member that it stands in: `kern` is used when `func` is
// null.
template <typename Parameters>
CUresult GetFunction(const Parameters& parameters, CUfunction* function) {
  *function = parameters.func;
  if constexpr (requires { parameters.kern; }) {
    if (*function == nullptr && parameters.kern != nullptr) {
      *function = reinterpret_cast<CUfunction>(parameters.kern);
      return FunctionFromHandle(*function, HandleKind::kKernel) != nullptr
                 ? CUDA_SUCCESS
                 : BadHandle(*function, "a CUkernel", CUDA_ERROR_INVALID_VALUE);
    }
  }
  return FunctionFromHandle(*function, HandleKind::kFunction) != nullptr
             ? CUDA_SUCCESS
             : BadHandle(*function, "a CUfunction", CUDA_ERROR_INVALID_VALUE);
}

template <typename Parameters>
CUresult MakeKernel(const Parameters* p, OperationPtr* operation) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const LaunchShape shape = {
      {p->gridDimX, p->gridDimY, p->gridDimZ}, {p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes};
  CUfunction function = nullptr;
  if (CUresult result = GetFunction(*p, &function); result != CUDA_SUCCESS) return result;
  std::shared_ptr<KernelOperation> made;
  const CUresult result = KernelOperation::Make(function, shape, p->kernelParams, p->extra, &made);
  *operation = std::move(made);
  return result;
}

template <typename Parameters>
CUresult AddKernel(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                   const Parameters* parameters) {
  OperationPtr operation;
  if (CUresult result = MakeKernel(parameters, &operation); result != CUDA_SUCCESS) return result;
  return AddNode(node, graph, dependencies, count, std::move(operation));
}

template <typename Parameters>
CUresult SetKernel(CUgraphExec exec, bool in_exec, CUgraphNode node, const Parameters* parameters) {
  OperationPtr operation;
  if (CUresult result = MakeKernel(parameters, &operation); result != CUDA_SUCCESS) return result;
  return Replace(exec, in_exec, node, std::move(operation));
}

template <typename Parameters>
CUresult GetKernel(CUgraphNode node, Parameters* parameters) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const auto kernel = OperationOf<KernelOperation>(node);
  if (kernel == nullptr || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *parameters = {};
  const CUfunction function = kernel->function();
  if (FunctionFromHandle(function, HandleKind::kKernel) == nullptr) {
    parameters->func = function;
  } else if constexpr (requires { parameters->kern; }) {
    parameters->kern = reinterpret_cast<CUkernel>(function);
  } else if (CUresult result = cuKernelGetFunction(&parameters->func, reinterpret_cast<CUkernel>(function));
             result != CUDA_SUCCESS) {
    return result;
  }
  parameters->gridDimX = kernel->shape().grid[0];
  parameters->gridDimY = kernel->shape().grid[1];
  parameters->gridDimZ = kernel->shape().grid[2];
  parameters->blockDimX = kernel->shape().block[0];
  parameters->blockDimY = kernel->shape().block[1];
  parameters->blockDimZ = kernel->shape().block[2];
  parameters->sharedMemBytes = kernel->shape().shared_bytes;
  parameters->kernelParams = kernel->parameters();
  return CUDA_SUCCESS;
}

uint64_t AddressOf(CUmemorytype type, const void* host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
}

// Linear and two-dimensional copies of ordinary memory; arrays and depth are not there.
CUresult MakeCopy(const CUDA_MEMCPY3D* copy, OperationPtr* operation) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (copy->srcMemoryType == CU_MEMORYTYPE_ARRAY || copy->dstMemoryType == CU_MEMORYTYPE_ARRAY ||
      copy->Depth != 1 || copy->srcZ != 0 || copy->dstZ != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CopyShape shape;
  shape.width = copy->WidthInBytes;
  shape.height = copy->Height;
  shape.destination_pitch = copy->dstPitch != 0 ? copy->dstPitch : shape.width;
  shape.source_pitch = copy->srcPitch != 0 ? copy->srcPitch : shape.width;
  shape.destination = AddressOf(copy->dstMemoryType, copy->dstHost, copy->dstDevice) +
                      copy->dstY * shape.destination_pitch + copy->dstXInBytes;
  shape.source = AddressOf(copy->srcMemoryType, copy->srcHost, copy->srcDevice) +
                 copy->srcY * shape.source_pitch + copy->srcXInBytes;
  *operation = std::make_shared<CopyOperation>(shape);
  return CUDA_SUCCESS;
}

CUresult GetCopy(CUgraphNode node, CUDA_MEMCPY3D* copy) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const auto operation = OperationOf<CopyOperation>(node);
  if (operation == nullptr || copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CopyShape& shape = operation->shape();
  *copy = {};
  copy->srcMemoryType = copy->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy->srcDevice = shape.source;
  copy->dstDevice = shape.destination;
  copy->srcPitch = shape.source_pitch;
  copy->dstPitch = shape.destination_pitch;
  copy->WidthInBytes = shape.width;
  copy->Height = shape.height;
  copy->Depth = 1;
  return CUDA_SUCCESS;
}

CUresult MakeFill(const CUDA_MEMSET_NODE_PARAMS* fill, OperationPtr* operation) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (fill == nullptr || (fill->elementSize != 1 && fill->elementSize != 2 && fill->elementSize != 4) ||
      fill->dst == 0 || fill->dst % fill->elementSize != 0 || fill->width == 0 || fill->height == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  FillShape shape;
  shape.destination = fill->dst;
  shape.width = fill->width;
  shape.height = fill->height;
  shape.pitch = fill->height > 1 ? fill->pitch : fill->width * fill->elementSize;
  shape.element_bytes = fill->elementSize;
  shape.value = fill->value;
  *operation = std::make_shared<FillOperation>(shape);
  return CUDA_SUCCESS;
}

// The child is cloned: later changes of it do not count.
CUresult MakeChild(CUgraph handle, OperationPtr* operation) {
  const Lock lock(GraphMutex());
  const Graph* child = Graph::FromHandle(handle);
  std::vector<GraphNode*> sorted;
  if (child == nullptr || !child->Sort(&sorted)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<OperationPtr> operations;
  for (const GraphNode* node : sorted) {
    if (!node->bodies.empty()) return CUDA_ERROR_INVALID_VALUE;
    operations.push_back(node->operation);
  }
  *operation = std::make_shared<ChildGraphOperation>(std::move(operations));
  return CUDA_SUCCESS;
}

CUresult MakeConditional(const CUDA_CONDITIONAL_NODE_PARAMS& p, OperationPtr* operation) {
  const bool known = p.type == CU_GRAPH_COND_TYPE_IF      ? p.size == 1 || p.size == 2
                     : p.type == CU_GRAPH_COND_TYPE_WHILE ? p.size == 1
                                                          : p.size != 0;
  if (!known || !IsCondition(p.handle)) return CUDA_ERROR_INVALID_VALUE;
  *operation = std::make_shared<ConditionalOperation>(p.handle, p.type);
  return CUDA_SUCCESS;
}

CUresult MakeHost(const CUDA_HOST_NODE_PARAMS* parameters, OperationPtr* operation) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (parameters == nullptr || parameters->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *operation = MakeHostOperation(parameters->fn, parameters->userData);
  return CUDA_SUCCESS;
}

// The types of node that the stand-in has.
CUresult MakeAny(CUgraphNodeParams* p, OperationPtr* operation) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMSET_NODE_PARAMS_v2& fill = p->memset;
  const CUDA_MEMSET_NODE_PARAMS plain_fill = {fill.dst,         fill.pitch, fill.value,
                                              fill.elementSize, fill.width, fill.height};
  const CUDA_HOST_NODE_PARAMS plain_host = {p->host.fn, p->host.userData};
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return MakeKernel(&p->kernel, operation);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return MakeCopy(&p->memcpy.copyParams, operation);
    case CU_GRAPH_NODE_TYPE_MEMSET: return MakeFill(&plain_fill, operation);
    case CU_GRAPH_NODE_TYPE_HOST: return MakeHost(&plain_host, operation);
    case CU_GRAPH_NODE_TYPE_GRAPH: return MakeChild(p->graph.graph, operation);
    case CU_GRAPH_NODE_TYPE_EMPTY: *operation = std::make_shared<EmptyOperation>(); return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return MakeConditional(p->conditional, operation);
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult AddAny(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                CUgraphNodeParams* p) {
  OperationPtr operation;
  if (CUresult result = MakeAny(p, &operation); result != CUDA_SUCCESS) return result;
  const bool conditional = p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
  return AddNode(node, graph, dependencies, count, std::move(operation),
                 conditional ? p->conditional.size : 0, conditional ? &p->conditional.phGraph_out : nullptr);
}

CUresult SetAny(CUgraphExec exec, bool in_exec, CUgraphNode node, CUgraphNodeParams* p) {
  OperationPtr operation;
  if (p != nullptr && p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return CUDA_ERROR_NOT_SUPPORTED;
  if (CUresult result = MakeAny(p, &operation); result != CUDA_SUCCESS) return result;
  return Replace(exec, in_exec, node, std::move(operation));
}

}  // namespace
}  // namespace simcuda

using simcuda::AddNode;
using simcuda::OperationPtr;
using simcuda::Replace;

SIMCUDA_API CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                    size_t count, CUgraphNodeParams* parameters) {
  return simcuda::AddAny(node, graph, dependencies, count, parameters);
}
SIMCUDA_API CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                       const CUgraphEdgeData*, size_t count, CUgraphNodeParams* parameters) {
  return simcuda::AddAny(node, graph, dependencies, count, parameters);
}
SIMCUDA_API CUresult cuGraphAddNode_v3(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                       const CUgraphEdgeData*, size_t count, CUgraphNodeParams* parameters) {
  return simcuda::AddAny(node, graph, dependencies, count, parameters);
}
SIMCUDA_API CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* parameters) {
  return simcuda::SetAny(nullptr, false, node, parameters);
}
SIMCUDA_API CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams* parameters) {
  return simcuda::SetAny(nullptr, false, node, parameters);
}
SIMCUDA_API CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                              CUgraphNodeParams* parameters) {
  return simcuda::SetAny(exec, true, node, parameters);
}

SIMCUDA_API CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                         size_t count) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  return AddNode(node, graph, dependencies, count, std::make_shared<simcuda::EmptyOperation>());
}

SIMCUDA_API CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                          size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  return simcuda::AddKernel(node, graph, dependencies, count, parameters);
}
SIMCUDA_API CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph,
                                             const CUgraphNode* dependencies, size_t count,
                                             const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  return simcuda::AddKernel(node, graph, dependencies, count, parameters);
}
SIMCUDA_API CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  return simcuda::GetKernel(node, parameters);
}
SIMCUDA_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  return simcuda::GetKernel(node, parameters);
}
SIMCUDA_API CUresult cuGraphKernelNodeSetParams(CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  return simcuda::SetKernel(nullptr, false, node, parameters);
}
SIMCUDA_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  return simcuda::SetKernel(nullptr, false, node, parameters);
}
SIMCUDA_API CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  return simcuda::SetKernel(exec, true, node, parameters);
}
SIMCUDA_API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                       const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  return simcuda::SetKernel(exec, true, node, parameters);
}

SIMCUDA_API CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                          size_t count, const CUDA_MEMCPY3D* copy, CUcontext) {
  OperationPtr operation;
  const CUresult result = simcuda::MakeCopy(copy, &operation);
  return result != CUDA_SUCCESS ? result : AddNode(node, graph, dependencies, count, std::move(operation));
}
SIMCUDA_API CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* copy) {
  return simcuda::GetCopy(node, copy);
}
SIMCUDA_API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* copy) {
  OperationPtr operation;
  const CUresult result = simcuda::MakeCopy(copy, &operation);
  return result != CUDA_SUCCESS ? result : Replace(nullptr, false, node, std::move(operation));
}
SIMCUDA_API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_MEMCPY3D* copy, CUcontext) {
  OperationPtr operation;
  const CUresult result = simcuda::MakeCopy(copy, &operation);
  return result != CUDA_SUCCESS ? result : Replace(exec, true, node, std::move(operation));
}

SIMCUDA_API CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                          size_t count, const CUDA_MEMSET_NODE_PARAMS* fill, CUcontext) {
  OperationPtr operation;
  const CUresult result = simcuda::MakeFill(fill, &operation);
  return result != CUDA_SUCCESS ? result : AddNode(node, graph, dependencies, count, std::move(operation));
}
SIMCUDA_API CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* parameters) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const auto operation = simcuda::OperationOf<simcuda::FillOperation>(node);
  if (operation == nullptr || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const simcuda::FillShape& shape = operation->shape();
  *parameters = {shape.destination, shape.pitch, shape.value, shape.element_bytes, shape.width, shape.height};
  return CUDA_SUCCESS;
}
SIMCUDA_API CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* fill) {
  OperationPtr operation;
  const CUresult result = simcuda::MakeFill(fill, &operation);
  return result != CUDA_SUCCESS ? result : Replace(nullptr, false, node, std::move(operation));
}
SIMCUDA_API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_MEMSET_NODE_PARAMS* fill, CUcontext) {
  OperationPtr operation;
  const CUresult result = simcuda::MakeFill(fill, &operation);
  return result != CUDA_SUCCESS ? result : Replace(exec, true, node, std::move(operation));
}

SIMCUDA_API CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                        size_t count, const CUDA_HOST_NODE_PARAMS* parameters) {
  OperationPtr operation;
  const CUresult result = simcuda::MakeHost(parameters, &operation);
  return result != CUDA_SUCCESS ? result : AddNode(node, graph, dependencies, count, std::move(operation));
}
SIMCUDA_API CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* parameters) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const auto operation = simcuda::OperationOf<simcuda::Operation>(node);
  if (operation == nullptr || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return simcuda::GetHostOperation(*operation, parameters) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIMCUDA_API CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* parameters) {
  OperationPtr operation;
  const CUresult result = simcuda::MakeHost(parameters, &operation);
  return result != CUDA_SUCCESS ? result : Replace(nullptr, false, node, std::move(operation));
}
SIMCUDA_API CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_HOST_NODE_PARAMS* parameters) {
  OperationPtr operation;
  const CUresult result = simcuda::MakeHost(parameters, &operation);
  return result != CUDA_SUCCESS ? result : Replace(exec, true, node, std::move(operation));
}
