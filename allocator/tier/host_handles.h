// Host memory made of handles (cuMemCreate), which kernels can reach at any address: each buffer is a handle of its own
// that may be mapped at a block's address as well. HostPool makes the host tier of them where the devices can, else of
// registered memory (pinned_slab.h). Any thread; may take long, so no lock is taken by the caller. Making fails when
// the system has no more memory, or the driver refuses.

#ifndef SPILLWAY_ALLOCATOR_TIER_HOST_HANDLES_H_
#define SPILLWAY_ALLOCATOR_TIER_HOST_HANDLES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

// Where handles come from, and who may touch them at their address in host memory. No devices: nobody wants handles.
struct HostReach {
  int node = 0;              // of the machine's memory (NUMA)
  std::vector<int> devices;  // whose copies and kernels touch them
};

// Adjoining buffers, the handle of each in order.
struct HandleSlab {
  std::byte* start = nullptr;
  uint64_t address_bytes = 0;  // reserved from there on
  std::vector<CUmemGenericAllocationHandle> handles;
};

// The devices that can reach handles in host memory (attribute 141), all at the node of the first of them. Others reach
// none. Fails when the driver cannot be asked.
absl::StatusOr<HostReach> FindHostReach(const CudaDriver* driver, int devices);
// Whether it works here: a buffer is made, written by the processor, copied to and from at its own address, and mapped
// and copied at another one. The first thing that fails, or differs. `context` need not be current.
absl::Status TryHostReach(const CudaDriver* driver, CUcontext context, const HostReach& reach,
                          uint64_t buffer_bytes);

// Makes `count` buffers of `buffer_bytes`. The processor and all devices of `reach` may touch them at `start`. What has
// been made goes back on failure. `context` need not be current.
absl::StatusOr<HandleSlab> MakeHandleSlab(const CudaDriver* driver, CUcontext context, const HostReach& reach,
                                          uint64_t buffer_bytes, size_t count);
// Gives them back. They must be mapped nowhere else.
void FreeHandleSlab(const CudaDriver* driver, CUcontext context, uint64_t buffer_bytes,
                    const HandleSlab& slab);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_HOST_HANDLES_H_
