// Pinned slabs: pieces of host memory that the driver registers at once. HostPool makes its buffers of them,
// and gives slabs back to the system that other processes of the node have a right to. Any thread; may take
// long, so no lock is held. Pinning fails when the system has no more memory, or its limits are reached.

#ifndef SPILLWAY_ALLOCATOR_TIER_PINNED_SLAB_H_
#define SPILLWAY_ALLOCATOR_TIER_PINNED_SLAB_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

// Bytes behind each slab that nobody may touch. It keeps slabs apart: each is pinned on its own, and no copy
// may reach over two of them. Mapped and unmapped with the slab.
inline constexpr uint64_t kSlabGuard = 4096;

// Page aligned memory of `bytes`, in whole pages. `context` need not be current.
absl::StatusOr<std::byte*> PinSlab(const CudaDriver* driver, CUcontext context, uint64_t bytes);
// Gives the slab of PinSlab back. False: the driver refused to let it go, and it stays until the process ends.
bool UnpinSlab(const CudaDriver* driver, CUcontext context, std::byte* slab, uint64_t bytes);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_PINNED_SLAB_H_
