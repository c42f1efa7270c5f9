// Answers about blocks of ours that a driver would give for resident device memory, so that an evicted block
// looks no different from outside. Also what frees and memory information need to know about a block or a
// device.

#ifndef SPILLWAY_INTEGRATION_HOOKS_POINTER_QUERIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_POINTER_QUERIES_H_

#include <cstdint>

#include "integration/hooks/hook_context.h"

namespace spillway::integration {

// The context when `address` lies in our reservation and the wrappers work; else null: not ours to answer
// for.
HookContext* ContextOwning(uint64_t address);

// The block that holds `address`; false when none does (free space of our reservation).
bool FindOurs(HookContext* context, uint64_t address, allocator::Residency::Range* range);

// Frees the block that starts at `address`. Ordered after what is queued on `stream` when `in_stream_order`.
CUresult FreeOurs(HookContext* context, uint64_t address, CUstream stream, bool in_stream_order);

// Budget and what is left of it on the current context's device; false when that device has none.
bool BudgetOfCurrentDevice(uint64_t* free_bytes, uint64_t* total_bytes);

// What pointer attributes are answered from.
struct PointerFacts {
  CUdeviceptr address = 0;
  CUdeviceptr base = 0;
  uint64_t bytes = 0;
  int device = 0;
  CUcontext context = nullptr;
};

// Writes the attribute's value to `data`. CUDA_ERROR_INVALID_VALUE for what device memory does not have;
// CUDA_ERROR_NOT_SUPPORTED for attributes that only the driver can answer. Pure.
CUresult AnswerAttribute(const PointerFacts& facts, CUpointer_attribute attribute, void* data);

// Bytes of one channel of an array's texel; formats that pack several texels count as one byte.
uint64_t BytesPerChannel(CUarray_format format);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_POINTER_QUERIES_H_
