// Stream capture, graphs and user objects: handed to the driver as they are. A function that the driver lacks
// returns cudaErrorNotSupported; a stream that never captured answers that it is not capturing.
#include "integration/simcuda/runtime/context.h"

using simcuda::DriverTable;
using simcuda::Record;
using simcuda::WithContext;
using simcuda::WithDriver;

namespace {

static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));
static_assert(static_cast<int>(cudaStreamCaptureStatusActive) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
static_assert(static_cast<int>(cudaStreamCaptureModeRelaxed) == CU_STREAM_CAPTURE_MODE_RELAXED);

const CUgraphEdgeData* Edges(const cudaGraphEdgeData* edges) {
  return reinterpret_cast<const CUgraphEdgeData*>(edges);
}

}  // namespace

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (status == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext([&](const DriverTable& driver) {
    CUstreamCaptureStatus answer = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = driver.StreamIsCapturing(stream, &answer);
    *status = static_cast<cudaStreamCaptureStatus>(answer);
    // A driver without capture has no capturing stream.
    return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                     size_t* dependency_count) {
  if (status == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext([&](const DriverTable& driver) {
    CUstreamCaptureStatus answer = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t capture = 0;
    const CUresult result =
        driver.StreamGetCaptureInfo(stream, &answer, &capture, graph, dependencies,
                                    reinterpret_cast<const CUgraphEdgeData**>(edges), dependency_count);
    *status = static_cast<cudaStreamCaptureStatus>(answer);
    if (id != nullptr) *id = capture;
    return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return WithContext([&](const DriverTable& driver) {
    return driver.StreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode));
  });
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* edges,
                                          size_t count, cudaStreamCaptureMode mode) {
  return WithContext([&](const DriverTable& driver) {
    return driver.StreamBeginCaptureToGraph(stream, graph, dependencies, Edges(edges), count,
                                            static_cast<CUstreamCaptureMode>(mode));
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return WithContext([&](const DriverTable& driver) { return driver.StreamEndCapture(stream, graph); });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData* edges, size_t count,
                                                unsigned int flags) {
  return WithContext([&](const DriverTable& driver) {
    return driver.StreamUpdateCaptureDependencies(stream, dependencies, Edges(edges), count, flags);
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (mode == nullptr) return Record(cudaErrorInvalidValue);
  return WithDriver([&](const DriverTable& driver) {
    auto exchanged = static_cast<CUstreamCaptureMode>(*mode);
    const CUresult result = driver.ThreadExchangeStreamCaptureMode(&exchanged);
    *mode = static_cast<cudaStreamCaptureMode>(exchanged);
    return result;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return WithDriver([&](const DriverTable& driver) { return driver.GraphDestroy(graph); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return WithDriver([&](const DriverTable& driver) { return driver.GraphExecDestroy(executable); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return WithDriver([&](const DriverTable& driver) { return driver.GraphGetNodes(graph, nodes, count); });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* dependencies,
                                         cudaGraphEdgeData* edges, size_t* count) {
  return WithDriver([&](const DriverTable& driver) {
    return driver.GraphNodeGetDependencies(node, dependencies, reinterpret_cast<CUgraphEdgeData*>(edges),
                                           count);
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return WithContext(
      [&](const DriverTable& driver) { return driver.GraphInstantiateWithFlags(executable, graph, flags); });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return WithContext([&](const DriverTable& driver) { return driver.GraphLaunch(executable, stream); });
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned int flags) {
  return WithDriver([&](const DriverTable& driver) { return driver.GraphDebugDotPrint(graph, path, flags); });
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph,
                                             unsigned int default_launch_value, unsigned int flags) {
  return WithContext([&](const DriverTable& driver) {
    CUcontext context = nullptr;
    CUgraphConditionalHandle created = 0;
    CUresult result = driver.CtxGetCurrent(&context);
    if (result == CUDA_SUCCESS) {
      result = driver.GraphConditionalHandleCreate(&created, graph, context, default_launch_value, flags);
    }
    if (result == CUDA_SUCCESS && handle != nullptr) *handle = created;
    return result;
  });
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, const cudaGraphEdgeData*,
                             size_t, cudaGraphNodeParams*) {
  // The node's parameters would have to be translated type by type; nothing here makes graphs by hand.
  return Record(cudaErrorNotSupported);
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned int count,
                                      unsigned int flags) {
  return WithDriver(
      [&](const DriverTable& driver) { return driver.GraphRetainUserObject(graph, object, count, flags); });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer, cudaHostFn_t destroy,
                                 unsigned int references, unsigned int flags) {
  return WithDriver([&](const DriverTable& driver) {
    return driver.UserObjectCreate(object, pointer, destroy, references, flags);
  });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count) {
  return WithDriver([&](const DriverTable& driver) { return driver.UserObjectRelease(object, count); });
}
