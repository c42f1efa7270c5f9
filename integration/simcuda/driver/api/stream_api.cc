// Driver functions: streams. Captures on them are in capture_api.cc.
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/graphs/capture.h"
#include "integration/simcuda/driver/machine/driver.h"

namespace simcuda {
namespace {

constexpr int kMinPriority = 0;
constexpr int kGreatestPriority = -5;

template <Form kForm>
CUresult Synchronize(CUstream handle) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (CUresult result = CheckStreamUse(*stream); result != CUDA_SUCCESS) return result;
  if (stream->kind() == StreamKind::kLegacy) {
    stream->context()->SynchronizeLegacy();
  } else {
    stream->WaitFor(stream->enqueued());
  }
  return stream->context()->status();
}

template <Form kForm>
CUresult Query(CUstream handle) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (CUresult result = CheckStreamUse(*stream); result != CUDA_SUCCESS) return result;
  const bool idle = stream->kind() == StreamKind::kLegacy ? stream->context()->IsLegacyIdle()
                                                          : stream->IsDone(stream->enqueued());
  return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

template <Form kForm>
CUresult GetPriority(CUstream handle, int* priority) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority();
  return CUDA_SUCCESS;
}

template <Form kForm>
CUresult GetFlags(CUstream handle, unsigned int* flags) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->kind() == StreamKind::kNonBlocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
  return CUDA_SUCCESS;
}

template <Form kForm>
CUresult GetId(CUstream handle, unsigned long long* id) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = stream->id();
  return CUDA_SUCCESS;
}

template <Form kForm>
CUresult GetContext(CUstream handle, CUcontext* context) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = stream->context()->handle();
  return CUDA_SUCCESS;
}

template <Form kForm>
CUresult GetContextV2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
  if (green != nullptr) *green = nullptr;
  return GetContext<kForm>(handle, context);
}

template <Form kForm>
CUresult GetDevice(CUstream handle, CUdevice* device) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context()->device().ordinal();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

using simcuda::Context;
using simcuda::Stream;

SIMCUDA_API CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned int flags, int priority) {
  SIMCUDA_FAIL_POINT(cuStreamCreateWithPriority);
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (handle == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (priority > simcuda::kMinPriority) priority = simcuda::kMinPriority;
  if (priority < simcuda::kGreatestPriority) priority = simcuda::kGreatestPriority;
  const bool non_blocking = (flags & CU_STREAM_NON_BLOCKING) != 0;
  Stream* stream = context->OpenStream(
      non_blocking ? simcuda::StreamKind::kNonBlocking : simcuda::StreamKind::kBlocking, priority);
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuStreamCreate(CUstream* handle, unsigned int flags) {
  return cuStreamCreateWithPriority(handle, flags, 0);
}

SIMCUDA_API CUresult cuStreamDestroy_v2(CUstream handle) {
  SIMCUDA_FAIL_POINT(cuStreamDestroy_v2);
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  Stream* stream = Stream::FromHandle(handle);
  if (stream == nullptr || stream->kind() == simcuda::StreamKind::kLegacy)
    return simcuda::BadHandle(handle, "a CUstream that was created", CUDA_ERROR_INVALID_HANDLE);
  Context* context = stream->context();
  context->CloseStream(stream);
  return context->status();  // the stream is gone all the same
}

SIMCUDA_API CUresult cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

SIMCUDA_API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  SIMCUDA_FAIL_POINT(cuCtxGetStreamPriorityRange);
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (least != nullptr) *least = simcuda::kMinPriority;
  if (greatest != nullptr) *greatest = simcuda::kGreatestPriority;
  return CUDA_SUCCESS;
}

SIMCUDA_BOTH_FORMS(cuStreamSynchronize, _ptsz, simcuda::Synchronize, (CUstream s), (s))
SIMCUDA_BOTH_FORMS(cuStreamQuery, _ptsz, simcuda::Query, (CUstream s), (s))
SIMCUDA_BOTH_FORMS(cuStreamGetPriority, _ptsz, simcuda::GetPriority, (CUstream s, int* p), (s, p))
SIMCUDA_BOTH_FORMS(cuStreamGetFlags, _ptsz, simcuda::GetFlags, (CUstream s, unsigned int* f), (s, f))
SIMCUDA_BOTH_FORMS(cuStreamGetId, _ptsz, simcuda::GetId, (CUstream s, unsigned long long* id), (s, id))
SIMCUDA_BOTH_FORMS(cuStreamGetCtx, _ptsz, simcuda::GetContext, (CUstream s, CUcontext* c), (s, c))
SIMCUDA_BOTH_FORMS(cuStreamGetCtx_v2, _ptsz, simcuda::GetContextV2, (CUstream s, CUcontext* c, CUgreenCtx* g),
                   (s, c, g))
SIMCUDA_BOTH_FORMS(cuStreamGetDevice, _ptsz, simcuda::GetDevice, (CUstream s, CUdevice* d), (s, d))
