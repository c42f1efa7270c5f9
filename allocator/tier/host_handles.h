// Host memory made of handles (cuMemCreate), which kernels can reach at any address: each buffer is a handle
// of its own that may be mapped at a block's address as well. HostPool makes the host tier of handles if the
// devices support it, or else of registered memory (pinned_slab.h). Any thread may call. A call may take
// long, so the caller has no lock. Making memory fails when the system has no more, or when the driver
// refuses.

#ifndef SPILLWAY_ALLOCATOR_TIER_HOST_HANDLES_H_
#define SPILLWAY_ALLOCATOR_TIER_HOST_HANDLES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

// The source of handles, and the devices that may access them at their address in host memory. No handles are
// made if there are no devices.
struct HostReach {
  int node = 0;              // of the machine's memory (NUMA node)
  std::vector<int> devices;  // whose copies and kernels access them
};

// Adjoining buffers, and the handle of each in order.
struct HandleSlab {
  std::byte* start = nullptr;
  uint64_t address_bytes = 0;  // reserved from `start` on
  std::vector<CUmemGenericAllocationHandle> handles;
};

// The devices that can reach handles in host memory (attribute 141), all at the node of the first of them.
// Returns no devices when one of them cannot. Fails when the driver cannot be asked.
absl::StatusOr<HostReach> FindHostReach(const CudaDriver* driver, int devices);
// Tests whether this works here. A buffer is made, written by the processor, copied to and from at its own
// address, and mapped and copied at another address. Returns the first step that fails or gives other bytes.
// `context` need not be current.
absl::Status TryHostReach(const CudaDriver* driver, CUcontext context, const HostReach& reach,
                          uint64_t buffer_bytes);

// Makes `count` buffers of `buffer_bytes`. The processor and all devices of `reach` may access them at
// `start`. On failure everything is given back. `context` need not be current.
absl::StatusOr<HandleSlab> MakeHandleSlab(const CudaDriver* driver, CUcontext context, const HostReach& reach,
                                          uint64_t buffer_bytes, size_t count);
// Gives the buffers back. They must not be mapped anywhere else.
void FreeHandleSlab(const CudaDriver* driver, CUcontext context, uint64_t buffer_bytes,
                    const HandleSlab& slab);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_HOST_HANDLES_H_
