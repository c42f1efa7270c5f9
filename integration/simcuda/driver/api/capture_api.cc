// Driver functions: stream capture, in every version and form.
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/graphs/capture.h"

namespace simcuda {
namespace {

template <Form kForm>
CUresult Begin(CUstream handle, CUstreamCaptureMode mode) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  return BeginCapture(*stream, mode, nullptr, nullptr, 0);
}

// The first version had no mode.
template <Form kForm>
CUresult BeginGlobal(CUstream handle) {
  return Begin<kForm>(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

template <Form kForm>
CUresult BeginToGraph(CUstream handle, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData*,
                      size_t count, CUstreamCaptureMode mode) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE
                          : BeginCapture(*stream, mode, graph, dependencies, count);
}

template <Form kForm>
CUresult EndOfStream(CUstream handle, CUgraph* graph) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : EndCapture(*stream, graph);
}

template <Form kForm>
CUresult InfoV3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  Stream* stream = nullptr;
  CaptureInfo info;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (status == nullptr || (edges != nullptr && dependencies == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = GetCaptureInfo(*stream, &info);
  if (info.has_edge_data && dependencies != nullptr && edges == nullptr) return CUDA_ERROR_LOSSY_QUERY;
  *status = info.status;
  if (id != nullptr) *id = info.id;
  if (graph != nullptr) *graph = info.graph;
  if (dependencies != nullptr) *dependencies = info.dependencies;
  if (edges != nullptr) *edges = info.edges;
  if (count != nullptr) *count = info.count;
  return result;
}

template <Form kForm>
CUresult InfoV2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                const CUgraphNode** dependencies, size_t* count) {
  // cuda.h does not say whether it looks at edges that are not asked for: the worst is assumed.
  const CUgraphNode* any = nullptr;
  return InfoV3<kForm>(handle, status, id, graph, dependencies == nullptr ? &any : dependencies, nullptr,
                       count);
}
// The first version knows of no edges.
template <Form kForm>
CUresult InfoV1(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return InfoV3<kForm>(handle, status, id, nullptr, nullptr, nullptr, nullptr);
}
template <Form kForm>
CUresult IsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return InfoV1<kForm>(handle, status, nullptr);
}

template <Form kForm>
CUresult UpdateV2(CUstream handle, CUgraphNode* nodes, const CUgraphEdgeData* edges, size_t count,
                  unsigned int flags) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  return UpdateCaptureDependencies(*stream, nodes, edges, count, flags);
}
template <Form kForm>
CUresult UpdateV1(CUstream handle, CUgraphNode* nodes, size_t count, unsigned int flags) {
  return UpdateV2<kForm>(handle, nodes, nullptr, count, flags);
}

}  // namespace
}  // namespace simcuda

SIMCUDA_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SIMCUDA_FAIL_POINT(cuThreadExchangeStreamCaptureMode);
  return simcuda::ExchangeCaptureMode(mode);
}

SIMCUDA_BOTH_FORMS(cuStreamBeginCapture, _ptsz, simcuda::BeginGlobal, (CUstream s), (s))
SIMCUDA_BOTH_FORMS(cuStreamBeginCapture_v2, _ptsz, simcuda::Begin, (CUstream s, CUstreamCaptureMode m),
                   (s, m))
SIMCUDA_BOTH_FORMS(cuStreamBeginCaptureToGraph, _ptsz, simcuda::BeginToGraph,
                   (CUstream s, CUgraph g, const CUgraphNode* d, const CUgraphEdgeData* e, size_t n,
                    CUstreamCaptureMode m),
                   (s, g, d, e, n, m))
SIMCUDA_BOTH_FORMS(cuStreamEndCapture, _ptsz, simcuda::EndOfStream, (CUstream s, CUgraph* g), (s, g))
SIMCUDA_BOTH_FORMS(cuStreamIsCapturing, _ptsz, simcuda::IsCapturing, (CUstream s, CUstreamCaptureStatus* c),
                   (s, c))
SIMCUDA_BOTH_FORMS(cuStreamGetCaptureInfo, _ptsz, simcuda::InfoV1,
                   (CUstream s, CUstreamCaptureStatus* c, cuuint64_t* id), (s, c, id))
SIMCUDA_BOTH_FORMS(cuStreamGetCaptureInfo_v2, _ptsz, simcuda::InfoV2,
                   (CUstream s, CUstreamCaptureStatus* c, cuuint64_t* id, CUgraph* g, const CUgraphNode** d,
                    size_t* n),
                   (s, c, id, g, d, n))
SIMCUDA_BOTH_FORMS(cuStreamGetCaptureInfo_v3, _ptsz, simcuda::InfoV3,
                   (CUstream s, CUstreamCaptureStatus* c, cuuint64_t* id, CUgraph* g, const CUgraphNode** d,
                    const CUgraphEdgeData** e, size_t* n),
                   (s, c, id, g, d, e, n))
SIMCUDA_BOTH_FORMS(cuStreamUpdateCaptureDependencies, _ptsz, simcuda::UpdateV1,
                   (CUstream s, CUgraphNode* d, size_t n, unsigned int f), (s, d, n, f))
SIMCUDA_BOTH_FORMS(cuStreamUpdateCaptureDependencies_v2, _ptsz, simcuda::UpdateV2,
                   (CUstream s, CUgraphNode* d, const CUgraphEdgeData* e, size_t n, unsigned int f),
                   (s, d, e, n, f))
