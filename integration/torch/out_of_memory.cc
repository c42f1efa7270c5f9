#include "integration/torch/out_of_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace spillway::integration {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
// Native's rules for the size of a segment: blocks below 10 MiB share segments of 20 MiB, larger ones are
// rounded.
constexpr size_t kSharedBelow = 10 * kMiB;
constexpr size_t kSharedSegment = 20 * kMiB;
constexpr size_t kSegmentRounding = 2 * kMiB;

}  // namespace

size_t NativeAllocationBytes(size_t requested) {
  if (requested < kSharedBelow) return kSharedSegment;
  return (requested + kSegmentRounding - 1) / kSegmentRounding * kSegmentRounding;
}

std::string OutOfMemoryText(const Refusal& refusal) {
  const size_t in_use = refusal.total - std::min(refusal.free, refusal.total);
  const size_t idle = refusal.reserved - std::min(refusal.allocated, refusal.reserved);
  std::string text = "CUDA out of memory. Tried to allocate ";
  text += SizeText(NativeAllocationBytes(refusal.requested));
  text += ". GPU " + std::to_string(static_cast<int>(refusal.device)) + " has a total capacity of ";
  text += SizeText(refusal.total) + " of which " + SizeText(refusal.free) + " is free. ";
  text += "Including non-PyTorch memory, this process has " + SizeText(in_use) + " memory in use. ";
  if (refusal.allowed != 0) text += SizeText(refusal.allowed) + " allowed; ";
  text += "Of the allocated memory " + SizeText(refusal.allocated) + " is allocated by PyTorch, and ";
  text += SizeText(idle) + " is reserved by PyTorch but unallocated.";
  text += "\nSpillway: ";
  text += refusal.reason.empty() ? "the block does not fit the GPU, host memory and disk together"
                                 : refusal.reason;
  return text;
}

bool RunFreeMemoryCallbacks() {
  bool freed = false;
  for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
    freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  }
  return freed;
}

void ThrowOutOfMemory(const Refusal& refusal,
                      const std::vector<c10::cuda::CUDACachingAllocator::OutOfMemoryObserver>& observers) {
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(refusal.requested), refusal.allocated,
                                   refusal.reserved, c10::Device(c10::DeviceType::CUDA, refusal.device));
  const size_t limit = refusal.allowed != 0 ? refusal.allowed : refusal.total;
  for (const auto& observer : observers) {
    observer(refusal.device, NativeAllocationBytes(refusal.requested), limit, refusal.free);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, OutOfMemoryText(refusal));
  throw;  // not reached: the check above always throws
}

}  // namespace spillway::integration
