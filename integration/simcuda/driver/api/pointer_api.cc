// Driver functions: queries of an address.
#include <cstring>

#include "integration/simcuda/driver/copies/host_memory.h"
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

// The driver's facts about one address.
struct Known {
  bool known = false;
  bool host = false;
  uint64_t start = 0;
  uint64_t size = 0;
  unsigned long long id = 0;
  Context* context = nullptr;
  int device = 0;
};

Known Inspect(uint64_t address) {
  Known result;
  const AddressInfo info = GetAddressSpace().Find(address);
  HostMemory host;
  if (info.mapped) {
    const Mapping& mapping = info.mapping;
    result = {true,
              mapping.device == nullptr,
              mapping.start,
              mapping.size,
              mapping.id,
              static_cast<Context*>(mapping.context),
              mapping.device == nullptr ? 0 : mapping.device->ordinal()};
    if (mapping.physical != nullptr && mapping.device != nullptr)
      result.context = &PrimaryContext(*mapping.device);
  } else if (FindHostMemory(address, &host)) {
    auto* context = static_cast<Context*>(host.context);
    result = {true, true, host.start, host.size, host.id, context, context->device().ordinal()};
  }
  return result;
}

template <typename Value>
void Put(void* data, Value value) {
  std::memcpy(data, &value, sizeof(value));
}

// Drivers write this many bytes for an answer that is true or false; no document gives the number.
size_t BooleanBytes() { return static_cast<size_t>(GetSettings().boolean_bytes.load()); }

void PutBoolean(void* data, bool value) {
  const uint32_t wide = value ? 1 : 0;
  std::memcpy(data, &wide, BooleanBytes());
}

CUresult Answer(const Known& known, CUpointer_attribute attribute, uint64_t address, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      Put(data, known.context == nullptr ? CUcontext{nullptr} : known.context->handle());
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      Put<unsigned int>(data, known.host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: Put<CUdeviceptr>(data, address); return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!known.host) return CUDA_ERROR_INVALID_VALUE;
      Put<uint64_t>(data, address);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: Put<unsigned long long>(data, known.id); return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: Put<int>(data, known.device); return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: Put<CUdeviceptr>(data, known.start); return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: Put<size_t>(data, known.size); return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED: PutBoolean(data, true); return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: PutBoolean(data, false); return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: Put<uint64_t>(data, 0); return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: Put<CUmemoryPool>(data, nullptr); return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      Put<unsigned int>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

size_t SizeOf(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return 4;
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return BooleanBytes();
    default: return 8;
  }
}

}  // namespace
}  // namespace simcuda

SIMCUDA_API CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  SIMCUDA_FAIL_POINT(cuPointerGetAttribute);
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const simcuda::Known known = simcuda::Inspect(pointer);
  if (!known.known) return CUDA_ERROR_INVALID_VALUE;
  return simcuda::Answer(known, attribute, pointer, data);
}

// Unlike the single form, an unknown address is no error: its attributes are null.
SIMCUDA_API CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                            CUdeviceptr pointer) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const simcuda::Known known = simcuda::Inspect(pointer);
  for (unsigned int i = 0; i < count; ++i) {
    std::memset(data[i], 0, simcuda::SizeOf(attributes[i]));
    if (!known.known) {
      if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) simcuda::Put<int>(data[i], -2);
      continue;
    }
    simcuda::Answer(known, attributes[i], pointer, data[i]);
  }
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                           CUdeviceptr pointer) {
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (value == nullptr || !simcuda::Inspect(pointer).known) return CUDA_ERROR_INVALID_VALUE;
  // All synchronous copies here are synchronous in full.
  return attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
