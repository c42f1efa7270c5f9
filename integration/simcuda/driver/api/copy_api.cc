// Driver functions: copies and memsets, linear and two-dimensional, in all their forms.
#include "integration/simcuda/driver/copies/copy.h"
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"

namespace simcuda {
namespace {

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

template <Form kForm>
CUresult Linear(uint64_t destination, uint64_t source, size_t bytes, CUstream handle, CopyReturn when) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  return SubmitCopy(*stream, {destination, source, bytes, 1, bytes, bytes}, when);
}

template <Form kForm>
CUresult CopyHtoD(CUdeviceptr destination, const void* source, size_t bytes) {
  return Linear<kForm>(destination, Address(source), bytes, nullptr, CopyReturn::kSync);
}
template <Form kForm>
CUresult CopyDtoH(void* destination, CUdeviceptr source, size_t bytes) {
  return Linear<kForm>(Address(destination), source, bytes, nullptr, CopyReturn::kSync);
}
template <Form kForm>
CUresult CopyAny(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  return Linear<kForm>(destination, source, bytes, nullptr, CopyReturn::kSync);
}
template <Form kForm>
CUresult CopyHtoDAsync(CUdeviceptr destination, const void* source, size_t bytes, CUstream stream) {
  return Linear<kForm>(destination, Address(source), bytes, stream, CopyReturn::kAsync);
}
template <Form kForm>
CUresult CopyDtoHAsync(void* destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  return Linear<kForm>(Address(destination), source, bytes, stream, CopyReturn::kAsync);
}
template <Form kForm>
CUresult CopyAnyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  return Linear<kForm>(destination, source, bytes, stream, CopyReturn::kAsync);
}
// All devices share one address space, so contexts of a peer copy add nothing.
template <Form kForm>
CUresult CopyPeer(CUdeviceptr destination, CUcontext, CUdeviceptr source, CUcontext, size_t bytes) {
  return Linear<kForm>(destination, source, bytes, nullptr, CopyReturn::kSync);
}
template <Form kForm>
CUresult CopyPeerAsync(CUdeviceptr destination, CUcontext, CUdeviceptr source, CUcontext, size_t bytes,
                       CUstream stream) {
  return Linear<kForm>(destination, source, bytes, stream, CopyReturn::kAsync);
}

bool SideOf(CUmemorytype type, const void* host, CUdeviceptr device, uint64_t offset, uint64_t* address) {
  if (type == CU_MEMORYTYPE_ARRAY) return false;
  *address = (type == CU_MEMORYTYPE_HOST ? Address(host) : device) + offset;
  return true;
}

template <Form kForm>
CUresult Copy2DOn(const CUDA_MEMCPY2D* copy, CUstream handle, CopyReturn when) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyShape shape;
  shape.width = copy->WidthInBytes;
  shape.height = copy->Height;
  shape.destination_pitch = copy->dstPitch != 0 ? copy->dstPitch : shape.width;
  shape.source_pitch = copy->srcPitch != 0 ? copy->srcPitch : shape.width;
  if (!SideOf(copy->dstMemoryType, copy->dstHost, copy->dstDevice,
              copy->dstY * shape.destination_pitch + copy->dstXInBytes, &shape.destination) ||
      !SideOf(copy->srcMemoryType, copy->srcHost, copy->srcDevice,
              copy->srcY * shape.source_pitch + copy->srcXInBytes, &shape.source)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return SubmitCopy(*stream, shape, when);
}
template <Form kForm>
CUresult Copy2D(const CUDA_MEMCPY2D* copy) {
  return Copy2DOn<kForm>(copy, nullptr, CopyReturn::kSync);
}
template <Form kForm>
CUresult Copy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return Copy2DOn<kForm>(copy, stream, CopyReturn::kAsync);
}

template <Form kForm>
CUresult Fill(CUdeviceptr destination, size_t pitch, uint32_t value, unsigned element, size_t width,
              size_t height, CUstream handle) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  return SubmitFill(*stream, {destination, width, height, pitch, element, value});
}
template <Form kForm, typename Value>
CUresult FillLinear(CUdeviceptr destination, Value value, size_t count, CUstream stream) {
  return Fill<kForm>(destination, count * sizeof(Value), value, sizeof(Value), count, 1, stream);
}
template <Form kForm, typename Value>
CUresult Fill2D(CUdeviceptr destination, size_t pitch, Value value, size_t width, size_t height,
                CUstream stream) {
  return Fill<kForm>(destination, pitch, value, sizeof(Value), width, height, stream);
}

}  // namespace
}  // namespace simcuda

using simcuda::Form;

SIMCUDA_BOTH_FORMS(cuMemcpyHtoD_v2, _ptds, simcuda::CopyHtoD, (CUdeviceptr d, const void* s, size_t n),
                   (d, s, n))
SIMCUDA_BOTH_FORMS(cuMemcpyDtoH_v2, _ptds, simcuda::CopyDtoH, (void* d, CUdeviceptr s, size_t n), (d, s, n))
SIMCUDA_BOTH_FORMS(cuMemcpyDtoD_v2, _ptds, simcuda::CopyAny, (CUdeviceptr d, CUdeviceptr s, size_t n),
                   (d, s, n))
SIMCUDA_BOTH_FORMS(cuMemcpy, _ptds, simcuda::CopyAny, (CUdeviceptr d, CUdeviceptr s, size_t n), (d, s, n))
SIMCUDA_BOTH_FORMS(cuMemcpyHtoDAsync_v2, _ptsz, simcuda::CopyHtoDAsync,
                   (CUdeviceptr d, const void* s, size_t n, CUstream t), (d, s, n, t))
SIMCUDA_BOTH_FORMS(cuMemcpyDtoHAsync_v2, _ptsz, simcuda::CopyDtoHAsync,
                   (void* d, CUdeviceptr s, size_t n, CUstream t), (d, s, n, t))
SIMCUDA_BOTH_FORMS(cuMemcpyDtoDAsync_v2, _ptsz, simcuda::CopyAnyAsync,
                   (CUdeviceptr d, CUdeviceptr s, size_t n, CUstream t), (d, s, n, t))
SIMCUDA_BOTH_FORMS(cuMemcpyAsync, _ptsz, simcuda::CopyAnyAsync,
                   (CUdeviceptr d, CUdeviceptr s, size_t n, CUstream t), (d, s, n, t))
SIMCUDA_BOTH_FORMS(cuMemcpyPeer, _ptds, simcuda::CopyPeer,
                   (CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n), (d, dc, s, sc, n))
SIMCUDA_BOTH_FORMS(cuMemcpyPeerAsync, _ptsz, simcuda::CopyPeerAsync,
                   (CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n, CUstream t),
                   (d, dc, s, sc, n, t))
SIMCUDA_BOTH_FORMS(cuMemcpy2D_v2, _ptds, simcuda::Copy2D, (const CUDA_MEMCPY2D* c), (c))
SIMCUDA_BOTH_FORMS(cuMemcpy2DUnaligned_v2, _ptds, simcuda::Copy2D, (const CUDA_MEMCPY2D* c), (c))
SIMCUDA_BOTH_FORMS(cuMemcpy2DAsync_v2, _ptsz, simcuda::Copy2DAsync, (const CUDA_MEMCPY2D* c, CUstream t),
                   (c, t))

SIMCUDA_BOTH_FORMS(cuMemsetD8_v2, _ptds, simcuda::FillLinear, (CUdeviceptr d, unsigned char v, size_t n),
                   (d, v, n, nullptr))
SIMCUDA_BOTH_FORMS(cuMemsetD16_v2, _ptds, simcuda::FillLinear, (CUdeviceptr d, unsigned short v, size_t n),
                   (d, v, n, nullptr))
SIMCUDA_BOTH_FORMS(cuMemsetD32_v2, _ptds, simcuda::FillLinear, (CUdeviceptr d, unsigned int v, size_t n),
                   (d, v, n, nullptr))
SIMCUDA_BOTH_FORMS(cuMemsetD8Async, _ptsz, simcuda::FillLinear,
                   (CUdeviceptr d, unsigned char v, size_t n, CUstream t), (d, v, n, t))
SIMCUDA_BOTH_FORMS(cuMemsetD16Async, _ptsz, simcuda::FillLinear,
                   (CUdeviceptr d, unsigned short v, size_t n, CUstream t), (d, v, n, t))
SIMCUDA_BOTH_FORMS(cuMemsetD32Async, _ptsz, simcuda::FillLinear,
                   (CUdeviceptr d, unsigned int v, size_t n, CUstream t), (d, v, n, t))
SIMCUDA_BOTH_FORMS(cuMemsetD2D8_v2, _ptds, simcuda::Fill2D,
                   (CUdeviceptr d, size_t p, unsigned char v, size_t w, size_t h), (d, p, v, w, h, nullptr))
SIMCUDA_BOTH_FORMS(cuMemsetD2D16_v2, _ptds, simcuda::Fill2D,
                   (CUdeviceptr d, size_t p, unsigned short v, size_t w, size_t h), (d, p, v, w, h, nullptr))
SIMCUDA_BOTH_FORMS(cuMemsetD2D32_v2, _ptds, simcuda::Fill2D,
                   (CUdeviceptr d, size_t p, unsigned int v, size_t w, size_t h), (d, p, v, w, h, nullptr))
SIMCUDA_BOTH_FORMS(cuMemsetD2D8Async, _ptsz, simcuda::Fill2D,
                   (CUdeviceptr d, size_t p, unsigned char v, size_t w, size_t h, CUstream t),
                   (d, p, v, w, h, t))
SIMCUDA_BOTH_FORMS(cuMemsetD2D16Async, _ptsz, simcuda::Fill2D,
                   (CUdeviceptr d, size_t p, unsigned short v, size_t w, size_t h, CUstream t),
                   (d, p, v, w, h, t))
SIMCUDA_BOTH_FORMS(cuMemsetD2D32Async, _ptsz, simcuda::Fill2D,
                   (CUdeviceptr d, size_t p, unsigned int v, size_t w, size_t h, CUstream t),
                   (d, p, v, w, h, t))
