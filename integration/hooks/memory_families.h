// Families for external memory and for questions about our blocks. External allocations are counted. A free
// of a block of ours goes to its Residency. A question about a block of ours gets the answer that a driver
// would give for resident device memory, so an evicted block looks no different from outside. They run on the
// thread of the call; a call that names free space of our reservation is refused, as the driver would refuse
// it.

#ifndef SPILLWAY_INTEGRATION_HOOKS_MEMORY_FAMILIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_MEMORY_FAMILIES_H_

#include <cstdint>

#include "integration/hooks/hook_context.h"
#include "integration/hooks/hook_families.h"
#include "integration/hooks/launch_gate.h"

namespace spillway::integration {

// ---- External memory, and frees.

// (address*, bytes, ...): counted on success, for the device of the current context; repeated once if the
// device is full.
struct CountedAlloc {
  template <typename P, typename N, typename... Rest>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(P*, N, Rest...), P* address, N bytes,
                       Rest... rest) {
    HookState* const state = GetHookState();
    // Set until PyTorch is found: this allocation may be its first one (HookState).
    if (void (*const look)() = state->before_external_allocation.load(std::memory_order_relaxed)) look();
    const CUresult result = CallWithRetry(state, bytes, [&] { return real(address, bytes, rest...); });
    if (result == CUDA_SUCCESS && address != nullptr) {
      state->external.OnAllocate(ExternalMemory::Kind::kAddress, *address, CurrentDevice(*state), bytes);
    }
    return result;
  }
};

// (address*, pitch*, width, height, element): asks for width * height bytes, and is counted with the pitch
// that the driver chose.
struct CountedPitchedAlloc {
  template <typename P, typename N>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(P*, N*, N, N, unsigned int), P* address,
                       N* pitch, N width, N height, unsigned int element) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, uint64_t{width} * height,
                                          [&] { return real(address, pitch, width, height, element); });
    if (result == CUDA_SUCCESS && address != nullptr && pitch != nullptr) {
      state->external.OnAllocate(ExternalMemory::Kind::kAddress, *address, CurrentDevice(*state),
                                 uint64_t{*pitch} * height);
    }
    return result;
  }
};

// Returns the bytes of one channel of an array's texel; formats that pack several texels count as one byte.
uint64_t BytesPerChannel(CUarray_format format);
// Returns the bytes of an array by its description; the driver may round up.
template <typename Descriptor>
uint64_t BytesOfArray(const Descriptor& array) {
  uint64_t texels = array.Width * (array.Height != 0 ? uint64_t{array.Height} : 1);
  if constexpr (requires { array.Depth; }) texels *= array.Depth != 0 ? uint64_t{array.Depth} : 1;
  return texels * array.NumChannels * BytesPerChannel(array.Format);
}

// (array*, description[, levels]): a pyramid of levels is counted as four thirds of its first level, since
// each level has a quarter of the last. No array is ever a block of ours.
struct CountedArray {
  template <typename H, typename Descriptor, typename... Levels>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(H*, const Descriptor*, Levels...), H* array,
                       const Descriptor* descriptor, Levels... levels) {
    HookState* const state = GetHookState();
    const CUresult result =
        CallWithRetry(state, kUnknownBytes, [&] { return real(array, descriptor, levels...); });
    if (result != CUDA_SUCCESS || array == nullptr || descriptor == nullptr) return result;
    const uint64_t bytes = BytesOfArray(*descriptor);
    const bool pyramid = sizeof...(levels) != 0;
    state->external.OnAllocate(pyramid ? ExternalMemory::Kind::kMipmappedArray : ExternalMemory::Kind::kArray,
                               AddressOf(*array), CurrentDevice(*state), pyramid ? bytes + bytes / 3 : bytes);
    return result;
  }
};

// (array): an array, or a pyramid of levels, is freed.
template <ExternalMemory::Kind kKind>
struct CountedArrayFree {
  template <typename H>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(H), H array) {
    const CUresult result = real(array);
    if (result == CUDA_SUCCESS) GetHookState()->external.OnFree(kKind, AddressOf(array));
    return result;
  }
};

// Frees the block that starts at `address`; with `in_stream_order`, after what is queued on `stream`. Returns
// CUDA_ERROR_INVALID_VALUE if no block starts there.
CUresult FreeOurs(HookContext* context, uint64_t address, CUstream stream, bool in_stream_order);

// cuMemFree and cuMemFreeAsync: a block of ours goes back to its Residency, external memory to the driver.
struct CountedFree {
  template <typename P, typename... Stream>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(P, Stream...), P address,
                       Stream... stream) {
    HookContext* const context = ContextOwning(address);
    if (context != nullptr) return FreeOurs(context, address, StreamOf(stream...), sizeof...(stream) != 0);
    // The entry is removed first: another thread may get the address as soon as the driver has it back.
    const uint64_t bytes = GetHookState()->external.OnFree(ExternalMemory::Kind::kAddress, address);
    const CUresult result = real(address, stream...);
    // If there is no stream, the driver has waited for the device.
    allocator::EscapedUsers users;
    (users.streams.push_back({stream, row.per_thread_default}), ...);
    if (result == CUDA_SUCCESS && bytes != 0) RecordExternalFreed(address, bytes, users);
    return result;
  }
};

// The virtual memory calls. Physical memory counts from its creation until it has neither a handle nor a
// mapping; memory that is not on a device does not count.
struct CountedCreate {
  static CUresult Call(const RowInfo&, decltype(&::cuMemCreate) real, CUmemGenericAllocationHandle* handle,
                       size_t bytes, const CUmemAllocationProp* prop, unsigned long long flags) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, bytes, [&] { return real(handle, bytes, prop, flags); });
    if (result == CUDA_SUCCESS && handle != nullptr && prop != nullptr &&
        prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
      state->external.OnCreate(*handle, prop->location.id, bytes);
    }
    return result;
  }
};
struct CountedRelease {
  static CUresult Call(const RowInfo&, decltype(&::cuMemRelease) real, CUmemGenericAllocationHandle handle) {
    const CUresult result = real(handle);
    if (result == CUDA_SUCCESS) GetHookState()->external.OnRelease(handle);
    return result;
  }
};
// A mapping of another library inside our reservation is refused, since it would break the reservation.
struct CountedMap {
  static CUresult Call(const RowInfo&, decltype(&::cuMemMap) real, CUdeviceptr address, size_t bytes,
                       size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    if (ContextOwning(address) != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = real(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS) GetHookState()->external.OnMap(address, bytes, handle);
    return result;
  }
};
// Refused for our reservation, which only we map and unmap. Addresses that lay in memory which others unmap
// pin nothing any more.
struct CountedUnmap {
  static CUresult Call(const RowInfo&, decltype(&::cuMemUnmap) real, CUdeviceptr address, size_t bytes) {
    if (ContextOwning(address) != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = real(address, bytes);
    if (result != CUDA_SUCCESS) return result;
    GetHookState()->external.OnUnmap(address, bytes);
    RecordExternalFreed(address, bytes, {});
    return result;
  }
};
// cuMemAddressFree: refused for our reservation.
struct RefusedOnOurs {
  static CUresult Call(const RowInfo&, decltype(&::cuMemAddressFree) real, CUdeviceptr address,
                       size_t bytes) {
    return ContextOwning(address) != nullptr ? CUDA_ERROR_INVALID_VALUE : real(address, bytes);
  }
};
// cuMemRetainAllocationHandle: a block of ours has no handle to give, just as memory of cuMemAlloc has none.
// It consists of several handles, which are taken away and cannot be exported. External memory gets one more
// reference.
struct RetainedHandle {
  static CUresult Call(const RowInfo& row, decltype(&::cuMemRetainAllocationHandle) real,
                       CUmemGenericAllocationHandle* handle, void* address);
};

// ---- Questions.

// Returns the budget of the current context's device and what is left of it; false if that device has none.
bool BudgetOfCurrentDevice(uint64_t* free_bytes, uint64_t* total_bytes);

// Answers free and total memory: the budget's, for a device that has one. The job sizes its memory by the
// answer, so it is shown what it can have, not what the device has.
struct MemoryInfo {
  template <typename N>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(N*, N*), N* free_bytes, N* total_bytes) {
    uint64_t free_now = 0;
    uint64_t total_now = 0;
    if (!BudgetOfCurrentDevice(&free_now, &total_now)) return real(free_bytes, total_bytes);
    if (free_bytes != nullptr) *free_bytes = static_cast<N>(free_now);
    if (total_bytes != nullptr) *total_bytes = static_cast<N>(total_now);
    return CUDA_SUCCESS;
  }
};

// cuMemGetAddressRange: start and size of the block that contains the address. CUDA_ERROR_NOT_FOUND in free
// space of our reservation, as the driver answers for memory that nobody has.
struct AddressRange {
  template <typename P, typename N>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(P*, N*, P), P* base, N* bytes, P address) {
    HookContext* const context = ContextOwning(address);
    if (context == nullptr) return real(base, bytes, address);
    allocator::Residency::Range range;
    if (!FindOurs(context, address, &range)) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = static_cast<P>(range.base);
    if (bytes != nullptr) *bytes = static_cast<N>(range.bytes);
    return CUDA_SUCCESS;
  }
};
// The facts from which pointer attributes are answered.
struct PointerFacts {
  CUdeviceptr address = 0;  // the one that was asked about
  CUdeviceptr base = 0;     // of the block
  uint64_t bytes = 0;       // of the block
  int device = 0;
  CUcontext context = nullptr;  // the primary one of the block's device
};

// Writes the attribute's value to `data`. Returns CUDA_ERROR_INVALID_VALUE for an attribute that device
// memory does not have; CUDA_ERROR_NOT_SUPPORTED for one that only the driver can answer. Pure.
CUresult AnswerAttribute(const PointerFacts& facts, CUpointer_attribute attribute, void* data);

// cuPointerGetAttribute. The driver is asked for attributes that it alone knows. The block is on the GPU
// meanwhile, and stays there until it is freed if the answer lets another device reach it.
struct PointerAttribute {
  static CUresult Call(const RowInfo& row, decltype(&::cuPointerGetAttribute) real, void* data,
                       CUpointer_attribute attribute, CUdeviceptr address);
};
// cuPointerGetAttributes. Writes null for an attribute that device memory does not have, as the driver does.
struct PointerAttributes {
  static CUresult Call(const RowInfo& row, decltype(&::cuPointerGetAttributes) real, unsigned int count,
                       CUpointer_attribute* attributes, void** data, CUdeviceptr address);
};
// cuMemGetAccess: the block's own device may read and write it; no other location has access.
struct AccessQuery {
  static CUresult Call(const RowInfo& row, decltype(&::cuMemGetAccess) real, unsigned long long* flags,
                       const CUmemLocation* location, CUdeviceptr address);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_MEMORY_FAMILIES_H_
