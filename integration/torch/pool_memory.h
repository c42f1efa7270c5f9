// PoolMemory gives PyTorch's private pools their memory in blocks of the engine. Native keeps its pools, with
// all their rules, and asks for a segment at the places where it would ask the driver. The memory that a CUDA
// graph's capture allocates therefore has a stable address, is named by the graph's launches, and may leave
// the GPU between them. SpillwayAllocator has the one object. Thread-safe; native's lock is held while it
// asks. A request for which memory is short returns a null pointer, which native refuses; any other failure
// of the engine throws c10::Error.

#ifndef SPILLWAY_INTEGRATION_TORCH_POOL_MEMORY_H_
#define SPILLWAY_INTEGRATION_TORCH_POOL_MEMORY_H_

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "integration/engine/spillway.h"
#include "integration/torch/compat_types.h"
#include "io/os/sync.h"

namespace spillway::integration {

class PoolMemory {
 public:
  explicit PoolMemory(const spillway_api* api) : api_(api) {}

  // Returns the allocator for native's pools; null if this PyTorch has no such thing. It lives forever.
  const std::shared_ptr<torch_cuda::CUDAAllocator>& Allocator();

  // Starts the engine on the device, which must not happen inside a capture. Must be called before the first
  // one.
  void Start(c10::DeviceIndex device);

  // Returns whether the address lies in a segment. Costs one load if there is none.
  bool Contains(const void* pointer) const;
  // Returns the bytes of the device's segments, which native counts as reserved, and the engine, too.
  size_t bytes(c10::DeviceIndex device) const {
    return bytes_[static_cast<size_t>(device)].load(std::memory_order_relaxed);
  }
  // Returns whether the device has ever had a segment.
  bool used(c10::DeviceIndex device) const {
    return used_[static_cast<size_t>(device)].load(std::memory_order_relaxed);
  }

 private:
  void* Allocate(size_t bytes, int device);
  void Free(void* segment, size_t bytes, int device);
  // Returns a stream that no work of the job is queued on, as the owner of the device's segments; null if the
  // driver has none.
  cudaStream_t OwnerOf(int device);
  // Gives segments that native has freed back to the engine, if the device can be waited for.
  void FreeLate();

  struct Freed {
    void* segment;
    int device;
  };

  const spillway_api* const api_;
  std::array<std::atomic<size_t>, C10_COMPILE_TIME_MAX_GPUS> bytes_{};
  std::array<std::atomic<bool>, C10_COMPILE_TIME_MAX_GPUS> used_{};
  std::atomic<size_t> segments_{0};  // the number of entries of ends_
  mutable os::Mutex mu_{os::LockRank::kRegistry};
  std::shared_ptr<torch_cuda::CUDAAllocator> allocator_ ABSL_GUARDED_BY(mu_);
  bool looked_ ABSL_GUARDED_BY(mu_) = false;
  std::map<const char*, const char*> ends_ ABSL_GUARDED_BY(mu_);  // of segments, by their starts
  std::vector<Freed> freed_ ABSL_GUARDED_BY(mu_);                 // by native
  std::array<std::atomic<cudaStream_t>, C10_COMPILE_TIME_MAX_GPUS> owners_{};
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_POOL_MEMORY_H_
