// The functions whose form changed with CUDA 13, as libcudart.so.12 exports them. The other files define the forms of
// 13; compiled with the headers of 12 these are overloads inside the library, which are called from here. Only in the
// runtime of CUDA 12.
#include <cstdint>

#include "integration/simcuda/runtime/context.h"

#pragma GCC visibility push(hidden)
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                     size_t* dependency_count);
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData* edges, size_t count,
                                                unsigned int flags);
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* dependencies,
                                         cudaGraphEdgeData* edges, size_t* count);
cudaError_t cudaMemcpyBatchAsync(void* const* dsts, const void* const* srcs, const size_t* sizes,
                                 size_t count, cudaMemcpyAttributes* attributes, size_t* indices,
                                 size_t attribute_count, cudaStream_t stream);
cudaError_t cudaMemcpy3DBatchAsync(size_t count, cudaMemcpy3DBatchOp* operations, unsigned long long flags,
                                   cudaStream_t stream);
#pragma GCC visibility pop

// ---- Without the data of edges, and with.

// In the header a macro gives this name its version 2.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, size_t* dependency_count) {
  return cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, nullptr, dependency_count);
}

cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                        unsigned long long* id, cudaGraph_t* graph,
                                        const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                        size_t* dependency_count) {
  return cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, edges, dependency_count);
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                size_t count, unsigned int flags) {
  return cudaStreamUpdateCaptureDependencies(stream, dependencies, nullptr, count, flags);
}

cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                   const cudaGraphEdgeData* edges, size_t count,
                                                   unsigned int flags) {
  return cudaStreamUpdateCaptureDependencies(stream, dependencies, edges, count, flags);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* dependencies, size_t* count) {
  return cudaGraphNodeGetDependencies(node, dependencies, nullptr, count);
}

cudaError_t cudaGraphNodeGetDependencies_v2(cudaGraphNode_t node, cudaGraphNode_t* dependencies,
                                            cudaGraphEdgeData* edges, size_t* count) {
  return cudaGraphNodeGetDependencies(node, dependencies, edges, count);
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, size_t,
                             cudaGraphNodeParams*) {
  return simcuda::Record(cudaErrorNotSupported);
}

cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*,
                                const cudaGraphEdgeData*, size_t, cudaGraphNodeParams*) {
  return simcuda::Record(cudaErrorNotSupported);
}

// ---- With the number of the copy that failed.

cudaError_t cudaMemcpyBatchAsync(void** dsts, void** srcs, size_t* sizes, size_t count,
                                 cudaMemcpyAttributes* attributes, size_t* indices, size_t attribute_count,
                                 size_t* failed, cudaStream_t stream) {
  const cudaError_t error =
      cudaMemcpyBatchAsync(dsts, srcs, sizes, count, attributes, indices, attribute_count, stream);
  if (error != cudaSuccess && failed != nullptr) *failed = SIZE_MAX;  // not one copy alone
  return error;
}

cudaError_t cudaMemcpy3DBatchAsync(size_t count, cudaMemcpy3DBatchOp* operations, size_t* failed,
                                   unsigned long long flags, cudaStream_t stream) {
  const cudaError_t error = cudaMemcpy3DBatchAsync(count, operations, flags, stream);
  if (error != cudaSuccess && failed != nullptr) *failed = SIZE_MAX;
  return error;
}
