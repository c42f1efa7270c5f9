// Driver functions: plain device memory and memory information.
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/execution/faults.h"
#include "integration/simcuda/driver/graphs/capture.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/machine/hardware_time.h"
#include "integration/simcuda/driver/memory/address_space.h"

using simcuda::AddressInfo;
using simcuda::Context;
using simcuda::EnterContext;
using simcuda::GetAddressSpace;
using simcuda::Mapping;

SIMCUDA_API CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t size) {
  SIMCUDA_FAIL_POINT(cuMemAlloc_v2);
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = simcuda::CheckUnsafeCall(); result != CUDA_SUCCESS) return result;
  simcuda::CallTime time(simcuda::Call::kAlloc);
  time.Spend(1, size);
  uint64_t start = 0;
  const CUresult result =
      GetAddressSpace().Allocate(size, &context->device(), context, simcuda::AllocationKind::kPlain, &start);
  if (result == CUDA_SUCCESS) *pointer = start;
  return result;
}

SIMCUDA_API CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height,
                                        unsigned int element_bytes) {
  if (pitch == nullptr || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr size_t kPitchUnit = 512;
  *pitch = (width + kPitchUnit - 1) / kPitchUnit * kPitchUnit;
  return cuMemAlloc_v2(pointer, *pitch * height);
}

SIMCUDA_API CUresult cuMemFree_v2(CUdeviceptr pointer) {
  SIMCUDA_FAIL_POINT(cuMemFree_v2);
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (pointer == 0) return CUDA_SUCCESS;
  Mapping allocation;
  if (!GetAddressSpace().FindAllocation(pointer, &allocation)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = simcuda::CheckUnsafeCall(); result != CUDA_SUCCESS) return result;
  // A free waits for the work of the context that owns the memory; work of other contexts on it is misuse.
  static_cast<Context*>(allocation.context)->Synchronize();
  simcuda::CheckNobodyTouches(allocation.start, allocation.size, "cuMemFree");
  simcuda::CallTime time(simcuda::Call::kFree);
  time.Spend(1, allocation.size);
  return GetAddressSpace().Free(pointer);
}

SIMCUDA_API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  SIMCUDA_FAIL_POINT(cuMemGetInfo_v2);
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (free != nullptr) *free = context->device().free();
  if (total != nullptr) *total = context->device().capacity();
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  const AddressInfo info = GetAddressSpace().Find(pointer);
  if (!info.mapped) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = info.mapping.start;
  if (size != nullptr) *size = info.mapping.size;
  return CUDA_SUCCESS;
}

SIMCUDA_API int simcuda_is_device_address(uint64_t address) {
  if (!simcuda::IsAlive()) return 0;
  const AddressInfo info = GetAddressSpace().Find(address);
  return info.mapped || info.reserved ? 1 : 0;
}
