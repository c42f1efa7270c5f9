// Driver functions: virtual memory management.
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/core/failures.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/execution/faults.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/machine/handles.h"
#include "integration/simcuda/driver/machine/hardware_time.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

// A real node has to be named: the driver refuses HOST_NUMA_CURRENT for handles (NVIDIA/cuda-python#2694).
bool IsHostLocation(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) return location.id == kHostNode;
  return location.type == CU_MEM_LOCATION_TYPE_HOST;
}

bool IsAccess(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

// The device of a location (null: host memory).
CUresult DeviceOf(const CUmemLocation& location, Device** device) {
  *device = nullptr;
  if (IsHostLocation(location)) return CUDA_SUCCESS;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  *device = FindDevice(location.id);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

// For a call that was given a handle of memory which nobody has.
CUresult BadMemoryHandle(CUmemGenericAllocationHandle handle) {
  return BadHandle(reinterpret_cast<const void*>(handle), "a CUmemGenericAllocationHandle",
                   "it was released, or this driver never gave it out", CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace simcuda

using simcuda::Call;
using simcuda::CallTime;
using simcuda::Device;
using simcuda::EnterAny;
using simcuda::GetAddressSpace;
using simcuda::IsAlive;

SIMCUDA_API CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                                   CUmemAllocationGranularity_flags option) {
  SIMCUDA_FAIL_POINT(cuMemGetAllocationGranularity);
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (granularity == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  if (CUresult result = simcuda::DeviceOf(properties->location, &device); result != CUDA_SUCCESS)
    return result;
  *granularity = static_cast<size_t>(simcuda::GetSettings().granularity.load());
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t size, size_t alignment,
                                         CUdeviceptr hint, unsigned long long flags) {
  SIMCUDA_FAIL_POINT(cuMemAddressReserve);
  if (CUresult result = EnterAny(); result != CUDA_SUCCESS) return result;
  if (pointer == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CallTime time(Call::kReserve);
  time.Spend();
  uint64_t start = 0;
  const CUresult result = GetAddressSpace().Reserve(size, alignment, hint, &start);
  if (result == CUDA_SUCCESS) *pointer = start;
  return result;
}

SIMCUDA_API CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) {
  SIMCUDA_FAIL_POINT(cuMemAddressFree);
  if (CUresult result = EnterAny(); result != CUDA_SUCCESS) return result;
  CallTime time(Call::kAddressFree);
  time.Spend();
  return GetAddressSpace().FreeReservation(pointer, size);
}

SIMCUDA_API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                                 const CUmemAllocationProp* properties, unsigned long long flags) {
  SIMCUDA_FAIL_POINT(cuMemCreate);
  if (CUresult result = EnterAny(); result != CUDA_SUCCESS) return result;
  if (handle == nullptr || properties == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Device* device = nullptr;
  if (CUresult result = simcuda::DeviceOf(properties->location, &device); result != CUDA_SUCCESS)
    return result;
  if (device != nullptr) {
    if (CUresult result = simcuda::PrimaryStatus(*device); result != CUDA_SUCCESS) return result;
  } else if (simcuda::GetSettings().host_handles.load() == 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CallTime time(Call::kCreate);
  time.Spend(1, size);
  if (simcuda::ShouldFailCreate()) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t id = 0;
  const CUresult result = GetAddressSpace().Create(size, *properties, device, &id);
  if (result == CUDA_SUCCESS) *handle = id;
  return result;
}

SIMCUDA_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  SIMCUDA_FAIL_POINT(cuMemRelease);
  if (CUresult result = EnterAny(); result != CUDA_SUCCESS) return result;
  CallTime time(Call::kRelease);
  if (!GetAddressSpace().IsHandle(handle)) return simcuda::BadMemoryHandle(handle);
  time.Spend();
  return GetAddressSpace().Release(handle);
}

SIMCUDA_API CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags) {
  SIMCUDA_FAIL_POINT(cuMemMap);
  if (CUresult result = EnterAny(); result != CUDA_SUCCESS) return result;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CallTime time(Call::kMap);
  if (!GetAddressSpace().IsHandle(handle)) return simcuda::BadMemoryHandle(handle);
  time.Spend(1, size);
  return GetAddressSpace().Map(pointer, size, offset, handle);
}

SIMCUDA_API CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) {
  SIMCUDA_FAIL_POINT(cuMemUnmap);
  if (CUresult result = EnterAny(); result != CUDA_SUCCESS) return result;
  if (CUresult result = GetAddressSpace().CheckUnmap(pointer, size); result != CUDA_SUCCESS) return result;
  // The real driver does not wait for kernels here: work that is still to touch the range is a bug of the
  // caller.
  simcuda::CheckNobodyTouches(pointer, size, "cuMemUnmap");
  CallTime time(Call::kUnmap);
  time.Spend(GetAddressSpace().CountMappings(pointer, size), size);
  return GetAddressSpace().Unmap(pointer, size);
}

SIMCUDA_API CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptions,
                                    size_t count) {
  SIMCUDA_FAIL_POINT(cuMemSetAccess);
  if (CUresult result = EnterAny(); result != CUDA_SUCCESS) return result;
  if (descriptions == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  // All are checked before any is carried out.
  for (size_t i = 0; i < count; ++i) {
    if (!simcuda::IsAccess(descriptions[i].flags)) return CUDA_ERROR_INVALID_VALUE;
  }
  CallTime time(Call::kSetAccess);
  time.Spend(GetAddressSpace().CountMappings(pointer, size), size);
  if (simcuda::ShouldFailSetAccess()) return CUDA_ERROR_NOT_READY;
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& description = descriptions[i];
    Device* device = nullptr;
    if (CUresult result = simcuda::DeviceOf(description.location, &device); result != CUDA_SUCCESS)
      return result;
    const unsigned mask = device == nullptr ? simcuda::kHostAccess : 1u << device->ordinal();
    const bool accessible = description.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (CUresult result = GetAddressSpace().SetAccess(pointer, size, mask, accessible);
        result != CUDA_SUCCESS) {
      return result;
    }
  }
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                    CUdeviceptr pointer) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  if (CUresult result = simcuda::DeviceOf(*location, &device); result != CUDA_SUCCESS) return result;
  unsigned mask = 0;
  if (CUresult result = GetAddressSpace().GetAccess(pointer, &mask); result != CUDA_SUCCESS) return result;
  const unsigned bit = device == nullptr ? simcuda::kHostAccess : 1u << device->ordinal();
  *flags = (mask & bit) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  if (CUresult result = EnterAny(); result != CUDA_SUCCESS) return result;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t id = 0;
  const CUresult result = GetAddressSpace().Retain(reinterpret_cast<uint64_t>(address), &id);
  if (result == CUDA_SUCCESS) *handle = id;
  return result;
}

SIMCUDA_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                            CUmemGenericAllocationHandle handle) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return GetAddressSpace().GetProperties(handle, properties);
}
