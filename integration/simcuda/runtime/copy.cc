// Copies and memsets. Each kind goes to the driver function of that direction, so that hooks on the driver's
// copy functions meet the same calls as on a GPU. Symbols (device globals) have no storage here.
#include "integration/simcuda/runtime/context.h"

using simcuda::DriverTable;
using simcuda::Record;
using simcuda::WithContext;

namespace {

CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUresult Copy(const DriverTable& driver, void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice: return driver.MemcpyHtoD(Address(dst), src, count);
    case cudaMemcpyDeviceToHost: return driver.MemcpyDtoH(dst, Address(src), count);
    case cudaMemcpyDeviceToDevice: return driver.MemcpyDtoD(Address(dst), Address(src), count);
    default: return driver.Memcpy(Address(dst), Address(src), count);
  }
}

CUresult CopyAsync(const DriverTable& driver, void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                   cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice: return driver.MemcpyHtoDAsync(Address(dst), src, count, stream);
    case cudaMemcpyDeviceToHost: return driver.MemcpyDtoHAsync(dst, Address(src), count, stream);
    case cudaMemcpyDeviceToDevice: return driver.MemcpyDtoDAsync(Address(dst), Address(src), count, stream);
    default: return driver.MemcpyAsync(Address(dst), Address(src), count, stream);
  }
}

bool IsKind(cudaMemcpyKind kind) { return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault; }

struct Rectangle {
  void* dst;
  size_t dst_pitch;
  const void* src;
  size_t src_pitch;
  size_t width;
  size_t height;
};

CUDA_MEMCPY2D Describe(const Rectangle& rectangle, cudaMemcpyKind kind) {
  const bool from_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
  const bool to_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
  const CUmemorytype other = kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : other;
  copy.srcHost = from_host ? rectangle.src : nullptr;
  copy.srcDevice = from_host ? 0 : Address(rectangle.src);
  copy.srcPitch = rectangle.src_pitch;
  copy.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : other;
  copy.dstHost = to_host ? rectangle.dst : nullptr;
  copy.dstDevice = to_host ? 0 : Address(rectangle.dst);
  copy.dstPitch = rectangle.dst_pitch;
  copy.WidthInBytes = rectangle.width;
  copy.Height = rectangle.height;
  return copy;
}

cudaError_t CheckRectangle(const Rectangle& rectangle, cudaMemcpyKind kind) {
  if (!IsKind(kind)) return cudaErrorInvalidMemcpyDirection;
  const bool too_narrow = rectangle.width > rectangle.dst_pitch || rectangle.width > rectangle.src_pitch;
  return too_narrow && rectangle.height > 1 ? cudaErrorInvalidPitchValue : cudaSuccess;
}

CUresult CopyPeer(const DriverTable& driver, void* dst, CUcontext dst_context, const void* src,
                  CUcontext src_context, size_t count, const cudaStream_t* stream) {
  return stream == nullptr
             ? driver.MemcpyPeer(Address(dst), dst_context, Address(src), src_context, count)
             : driver.MemcpyPeerAsync(Address(dst), dst_context, Address(src), src_context, count, *stream);
}

cudaError_t PeerCopy(void* dst, int dst_device, const void* src, int src_device, size_t count,
                     const cudaStream_t* stream) {
  return WithContext([&](const DriverTable& driver) {
    CUcontext dst_context = nullptr;
    CUcontext src_context = nullptr;
    cudaError_t error = simcuda::PrimaryContext(driver, dst_device, &dst_context);
    if (error == cudaSuccess) error = simcuda::PrimaryContext(driver, src_device, &src_context);
    if (error != cudaSuccess || count == 0) return error;
    return simcuda::ToRuntimeError(CopyPeer(driver, dst, dst_context, src, src_context, count, stream));
  });
}

}  // namespace

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  if (!IsKind(kind)) return Record(cudaErrorInvalidMemcpyDirection);
  return WithContext([&](const DriverTable& driver) {
    return count == 0 ? CUDA_SUCCESS : Copy(driver, dst, src, count, kind);
  });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (!IsKind(kind)) return Record(cudaErrorInvalidMemcpyDirection);
  return WithContext([&](const DriverTable& driver) {
    return count == 0 ? CUDA_SUCCESS : CopyAsync(driver, dst, src, count, kind, stream);
  });
}

cudaError_t cudaMemcpyPeer(void* dst, int dst_device, const void* src, int src_device, size_t count) {
  return PeerCopy(dst, dst_device, src, src_device, count, nullptr);
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device, size_t count,
                                cudaStream_t stream) {
  return PeerCopy(dst, dst_device, src, src_device, count, &stream);
}

cudaError_t cudaMemcpy2D(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
  const Rectangle rectangle{dst, dst_pitch, src, src_pitch, width, height};
  if (const cudaError_t error = CheckRectangle(rectangle, kind); error != cudaSuccess) return Record(error);
  return WithContext([&](const DriverTable& driver) {
    const CUDA_MEMCPY2D copy = Describe(rectangle, kind);
    return width == 0 || height == 0 ? CUDA_SUCCESS : driver.Memcpy2D(&copy);
  });
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  const Rectangle rectangle{dst, dst_pitch, src, src_pitch, width, height};
  if (const cudaError_t error = CheckRectangle(rectangle, kind); error != cudaSuccess) return Record(error);
  return WithContext([&](const DriverTable& driver) {
    const CUDA_MEMCPY2D copy = Describe(rectangle, kind);
    return width == 0 || height == 0 ? CUDA_SUCCESS : driver.Memcpy2DAsync(&copy, stream);
  });
}

// The runtime's attributes and operations are the driver's, by their layout.
static_assert(sizeof(cudaMemcpyAttributes) == sizeof(CUmemcpyAttributes) &&
              sizeof(cudaMemcpy3DBatchOp) == sizeof(CUDA_MEMCPY3D_BATCH_OP));

cudaError_t cudaMemcpyBatchAsync(void* const* dsts, const void* const* srcs, const size_t* sizes,
                                 size_t count, cudaMemcpyAttributes* attributes, size_t* indices,
                                 size_t attribute_count, cudaStream_t stream) {
  return WithContext([&](const DriverTable& driver) {
    return driver.MemcpyBatchAsync(
        reinterpret_cast<CUdeviceptr*>(const_cast<void**>(dsts)),
        reinterpret_cast<CUdeviceptr*>(const_cast<void**>(const_cast<const void**>(srcs))),
        const_cast<size_t*>(sizes), count, reinterpret_cast<CUmemcpyAttributes*>(attributes), indices,
        attribute_count, stream);
  });
}

cudaError_t cudaMemcpy3DBatchAsync(size_t count, cudaMemcpy3DBatchOp* operations, unsigned long long flags,
                                   cudaStream_t stream) {
  return WithContext([&](const DriverTable& driver) {
    return driver.Memcpy3DBatchAsync(count, reinterpret_cast<CUDA_MEMCPY3D_BATCH_OP*>(operations), flags,
                                     stream);
  });
}

cudaError_t cudaMemset(void* device_pointer, int value, size_t count) {
  return WithContext([&](const DriverTable& driver) {
    return count == 0 ? CUDA_SUCCESS
                      : driver.MemsetD8(Address(device_pointer), static_cast<unsigned char>(value), count);
  });
}

cudaError_t cudaMemsetAsync(void* device_pointer, int value, size_t count, cudaStream_t stream) {
  return WithContext([&](const DriverTable& driver) {
    return count == 0 ? CUDA_SUCCESS
                      : driver.MemsetD8Async(Address(device_pointer), static_cast<unsigned char>(value),
                                             count, stream);
  });
}

cudaError_t cudaGetSymbolAddress(void** device_pointer, const void*) {
  if (device_pointer != nullptr) *device_pointer = nullptr;
  return Record(cudaErrorNotSupported);
}

cudaError_t cudaGetSymbolSize(size_t*, const void*) { return Record(cudaErrorNotSupported); }

cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return Record(cudaErrorNotSupported);
}

cudaError_t cudaMemcpyFromSymbol(void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return Record(cudaErrorNotSupported);
}
