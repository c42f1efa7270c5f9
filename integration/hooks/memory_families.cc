#include "integration/hooks/memory_families.h"

#include <cstring>

#include "integration/hooks/launch_access_sets.h"

namespace spillway::integration {
namespace {

template <typename T>
CUresult Put(void* data, T value) {
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

bool FindFacts(const HookContext* context, CUdeviceptr address, PointerFacts* facts) {
  allocator::Residency::Range range;
  if (!FindOurs(context, address, &range)) return false;
  const int device = context->addresses->Find(range.base).device();
  *facts = {address, range.base, range.bytes, device, context->contexts[device]};
  return true;
}

// The newest attribute that is understood, IS_HW_DECOMPRESS_CAPABLE of CUDA 12.8.
constexpr int kNewestAttribute = 21;

// The driver answers for what is mapped there, so the block is on the GPU meanwhile. It stays until it is
// freed if the answer lets another device reach it. It is not known whether a newer attribute does, so it
// gets an older driver's answer.
CUresult AskDriver(const RowInfo& row, decltype(&::cuPointerGetAttribute) real, void* data,
                   CUpointer_attribute attribute, CUdeviceptr address) {
  if (attribute > kNewestAttribute) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
    return Pinned<allocator::PinReason::kUnknownCall, AnyArgument>::Call(row, real, data, attribute, address);
  return Gated<AnyArgument>::Call(row, real, data, attribute, address);
}

}  // namespace

CUresult FreeOurs(HookContext* context, uint64_t address, CUstream stream, bool in_stream_order) {
  const allocator::BlockId block = context->addresses->Find(address);
  allocator::Residency* const residency = block.valid() ? context->Of(block.device()) : nullptr;
  if (residency == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (in_stream_order && !residency->RecordStream(address, stream).ok()) return CUDA_ERROR_INVALID_VALUE;
  RecordBlockFreed(address);
  return residency->Free(address).ok() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool BudgetOfCurrentDevice(uint64_t* free_bytes, uint64_t* total_bytes) {
  HookState* const state = GetHookState();
  const HookContext* const context = ContextOf(state);
  const allocator::Residency* const residency =
      context == nullptr ? nullptr : context->Of(CurrentDevice(*state));
  if (residency == nullptr) return false;
  residency->MemoryInfo(free_bytes, total_bytes);
  return true;
}

CUresult AnswerAttribute(const PointerFacts& facts, CUpointer_attribute attribute, void* data) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return Put(data, facts.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return Put(data, static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return Put(data, facts.address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: return CUDA_ERROR_INVALID_VALUE;  // device memory has none
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:  // virtual memory is not
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:  // chunks are created without it
      return Put(data, 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return Put(data, facts.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return Put(data, facts.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return Put(data, static_cast<size_t>(facts.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED: return Put(data, 1u);
    // Writes as many bytes as the narrowest caller has: NVIDIA's headers do not give the size, and other
    // shims write 4.
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return Put(data, uint32_t{CU_MEM_HANDLE_TYPE_NONE});
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return Put(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return Put(data, CUmemoryPool{nullptr});
    default: return CUDA_ERROR_NOT_SUPPORTED;  // ids, tokens, newer attributes
  }
}

uint64_t BytesPerChannel(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2;
    default: return 1;
  }
}

CUresult RetainedHandle::Call(const RowInfo&, decltype(&::cuMemRetainAllocationHandle) real,
                              CUmemGenericAllocationHandle* handle, void* address) {
  if (ContextOwning(reinterpret_cast<uint64_t>(address)) != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = real(handle, address);
  if (result == CUDA_SUCCESS && handle != nullptr) GetHookState()->external.OnRetain(*handle);
  return result;
}

CUresult PointerAttribute::Call(const RowInfo& row, decltype(&::cuPointerGetAttribute) real, void* data,
                                CUpointer_attribute attribute, CUdeviceptr address) {
  HookContext* const context = ContextOwning(address);
  if (context == nullptr) return real(data, attribute, address);
  PointerFacts facts;
  if (!FindFacts(context, address, &facts)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = AnswerAttribute(facts, attribute, data);
  return result == CUDA_ERROR_NOT_SUPPORTED ? AskDriver(row, real, data, attribute, address) : result;
}

CUresult PointerAttributes::Call(const RowInfo& row, decltype(&::cuPointerGetAttributes) real,
                                 unsigned int count, CUpointer_attribute* attributes, void** data,
                                 CUdeviceptr address) {
  HookContext* const context = ContextOwning(address);
  if (context == nullptr || attributes == nullptr || data == nullptr) {
    return real(count, attributes, data, address);
  }
  PointerFacts facts;
  if (!FindFacts(context, address, &facts)) return CUDA_ERROR_INVALID_VALUE;
  const auto get_one = GetHookState()->real.Ask<Row::cuPointerGetAttribute>();
  for (unsigned int i = 0; i < count; ++i) {
    const CUresult result = AnswerAttribute(facts, attributes[i], data[i]);
    if (result == CUDA_ERROR_NOT_SUPPORTED && get_one != nullptr) {
      const CUresult asked = AskDriver(row, get_one, data[i], attributes[i], address);
      if (asked != CUDA_SUCCESS) return asked;
    } else if (result != CUDA_SUCCESS && data[i] != nullptr) {
      Put(data[i], static_cast<void*>(nullptr));  // as the driver does for attributes that are not there
    }
  }
  return CUDA_SUCCESS;
}

CUresult AccessQuery::Call(const RowInfo&, decltype(&::cuMemGetAccess) real, unsigned long long* flags,
                           const CUmemLocation* location, CUdeviceptr address) {
  HookContext* const context = ContextOwning(address);
  if (context == nullptr) return real(flags, location, address);
  PointerFacts facts;
  if (flags == nullptr || location == nullptr || !FindFacts(context, address, &facts)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool ours = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == facts.device;
  *flags = ours ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

}  // namespace spillway::integration
