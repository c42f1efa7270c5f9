// The end of a refused allocation: PyTorch's own order of events (profiler, observers, OutOfMemoryError with
// PyTorch's text), plus one line of ours with the reason. SpillwayAllocator calls it on the allocating
// thread, without locks.

#ifndef SPILLWAY_INTEGRATION_TORCH_OUT_OF_MEMORY_H_
#define SPILLWAY_INTEGRATION_TORCH_OUT_OF_MEMORY_H_

#include <cstddef>
#include <string>
#include <vector>

#include "integration/torch/compat_types.h"

namespace spillway::integration {

// The facts about a refused allocation, in bytes.
struct Refusal {
  c10::DeviceIndex device = 0;
  size_t requested = 0;
  size_t free = 0;  // of the device, as the job sees it
  size_t total = 0;
  size_t allowed = 0;    // set_per_process_memory_fraction; 0 = no limit
  size_t allocated = 0;  // by PyTorch, native's and ours
  size_t reserved = 0;   // physical
  std::string reason;    // the engine's text
};

// Returns the bytes that native would have asked the driver for: the figure that its text and its observers
// give.
size_t NativeAllocationBytes(size_t requested);

// Returns PyTorch's text for `refusal`, with our line at its end.
std::string OutOfMemoryText(const Refusal& refusal);

// Runs PyTorch's callbacks that can free memory (CUDA IPC's limbo). Returns true if one freed something.
bool RunFreeMemoryCallbacks();

// Informs the profiler and the observers, then throws c10::OutOfMemoryError. Called without locks.
[[noreturn]] void ThrowOutOfMemory(
    const Refusal& refusal,
    const std::vector<c10::cuda::CUDACachingAllocator::OutOfMemoryObserver>& observers);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_OUT_OF_MEMORY_H_
