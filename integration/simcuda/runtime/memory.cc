// Allocation: device, pinned host, registered host, managed, stream-ordered and its pools; memory info and
// pointer attributes. All of it is the driver's; this file only gives the runtime's conventions (size 0, null).
#include <cstring>

#include "integration/simcuda/runtime/context.h"

using simcuda::DriverTable;
using simcuda::Record;
using simcuda::WithContext;
using simcuda::WithDriver;

namespace {

CUdeviceptr AddressOf(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUdeviceptr* AddressOut(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

cudaError_t AllocateHost(void** host, size_t size, unsigned int flags) {
  if (host == nullptr) return Record(cudaErrorInvalidValue);
  *host = nullptr;
  return WithContext([&](const DriverTable& driver) {
    return size == 0 ? CUDA_SUCCESS : driver.MemHostAlloc(host, size, flags);
  });
}

cudaMemoryType RuntimeMemoryType(unsigned int driver_type, unsigned int managed) {
  if (managed != 0) return cudaMemoryTypeManaged;
  switch (driver_type) {
    case CU_MEMORYTYPE_HOST: return cudaMemoryTypeHost;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_ARRAY: return cudaMemoryTypeDevice;
    case CU_MEMORYTYPE_UNIFIED: return cudaMemoryTypeManaged;
    default: return cudaMemoryTypeUnregistered;
  }
}

CUresult FillPointerAttributes(const DriverTable& driver, const void* pointer,
                               cudaPointerAttributes* attributes) {
  unsigned int type = 0;
  unsigned int managed = 0;
  int device = -1;
  void* device_pointer = nullptr;  // a CUdeviceptr of the same width
  void* host_pointer = nullptr;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                 CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* values[] = {&type, &managed, &device, &device_pointer, &host_pointer};
  const CUresult result = driver.PointerGetAttributes(5, names, values, AddressOf(pointer));
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE) return result;
  *attributes = cudaPointerAttributes{};
  attributes->type = result == CUDA_SUCCESS ? RuntimeMemoryType(type, managed) : cudaMemoryTypeUnregistered;
  if (attributes->type == cudaMemoryTypeUnregistered) {
    // The runtime answers for memory that the driver does not know: plain host memory, on no device.
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = const_cast<void*>(pointer);
    return CUDA_SUCCESS;
  }
  attributes->device = device;
  attributes->devicePointer = device_pointer;
  attributes->hostPointer = host_pointer;
  return CUDA_SUCCESS;
}

}  // namespace

cudaError_t cudaMalloc(void** device_pointer, size_t size) {
  if (device_pointer == nullptr) return Record(cudaErrorInvalidValue);
  *device_pointer = nullptr;
  return WithContext([&](const DriverTable& driver) {
    return size == 0 ? CUDA_SUCCESS : driver.MemAlloc(AddressOut(device_pointer), size);
  });
}

cudaError_t cudaFree(void* device_pointer) {
  // cudaFree(nullptr) is the customary way to initialize a context.
  return WithContext([&](const DriverTable& driver) {
    return device_pointer == nullptr ? CUDA_SUCCESS : driver.MemFree(AddressOf(device_pointer));
  });
}

cudaError_t cudaMallocManaged(void** device_pointer, size_t size, unsigned int flags) {
  if (device_pointer == nullptr || size == 0) return Record(cudaErrorInvalidValue);
  return WithContext([&](const DriverTable& driver) {
    return driver.MemAllocManaged(AddressOut(device_pointer), size, flags);
  });
}

cudaError_t cudaMallocHost(void** host, size_t size) { return AllocateHost(host, size, 0); }

cudaError_t cudaHostAlloc(void** host, size_t size, unsigned int flags) {
  return AllocateHost(host, size, flags);
}

cudaError_t cudaFreeHost(void* host) {
  return WithContext(
      [&](const DriverTable& driver) { return host == nullptr ? CUDA_SUCCESS : driver.MemFreeHost(host); });
}

cudaError_t cudaHostRegister(void* host, size_t size, unsigned int flags) {
  return WithContext([&](const DriverTable& driver) { return driver.MemHostRegister(host, size, flags); });
}

cudaError_t cudaHostUnregister(void* host) {
  return WithContext([&](const DriverTable& driver) { return driver.MemHostUnregister(host); });
}

cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* host, unsigned int flags) {
  return WithContext([&](const DriverTable& driver) {
    return driver.MemHostGetDevicePointer(AddressOut(device_pointer), host, flags);
  });
}

cudaError_t cudaHostGetFlags(unsigned int* flags, void* host) {
  return WithContext([&](const DriverTable& driver) { return driver.MemHostGetFlags(flags, host); });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return WithContext([&](const DriverTable& driver) { return driver.MemGetInfo(free_bytes, total_bytes); });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (attributes == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext(
      [&](const DriverTable& driver) { return FillPointerAttributes(driver, pointer, attributes); });
}

cudaError_t cudaMallocAsync(void** device_pointer, size_t size, cudaStream_t stream) {
  if (device_pointer == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext([&](const DriverTable& driver) {
    return driver.MemAllocAsync(AddressOut(device_pointer), size, stream);
  });
}

cudaError_t cudaFreeAsync(void* device_pointer, cudaStream_t stream) {
  return WithContext(
      [&](const DriverTable& driver) { return driver.MemFreeAsync(AddressOf(device_pointer), stream); });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return WithDriver([&](const DriverTable& driver) { return driver.DeviceGetDefaultMemPool(pool, device); });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return WithDriver([&](const DriverTable& driver) {
    return driver.MemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return WithDriver([&](const DriverTable& driver) {
    return driver.MemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* accesses, size_t count) {
  static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));
  return WithDriver([&](const DriverTable& driver) {
    return driver.MemPoolSetAccess(pool, reinterpret_cast<const CUmemAccessDesc*>(accesses), count);
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep) {
  return WithDriver([&](const DriverTable& driver) { return driver.MemPoolTrimTo(pool, bytes_to_keep); });
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void* value) {
  return WithDriver([&](const DriverTable& driver) {
    return driver.DeviceGetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(attribute), value);
  });
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void* value) {
  return WithDriver([&](const DriverTable& driver) {
    return driver.DeviceSetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(attribute), value);
  });
}
