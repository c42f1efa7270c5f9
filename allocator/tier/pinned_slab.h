// Pinned slabs: pieces of host memory that the driver registers in one call. HostPool makes its buffers of
// them. Any thread may call. A call may take long, so the caller has no lock. Pinning fails when the system
// has no more memory, or when its limits are reached.

#ifndef SPILLWAY_ALLOCATOR_TIER_PINNED_SLAB_H_
#define SPILLWAY_ALLOCATOR_TIER_PINNED_SLAB_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

// Bytes behind each slab that nobody may access. They keep slabs apart: each slab is pinned on its own, and
// no copy may span two of them. They are mapped and unmapped with the slab.
inline constexpr uint64_t kSlabGuard = 4096;

// Returns page-aligned memory of `bytes`, in whole pages. `context` need not be current.
absl::StatusOr<std::byte*> PinSlab(const CudaDriver* driver, CUcontext context, uint64_t bytes);
// Gives back the slab of PinSlab. Returns false when the driver refused to unpin it; it then stays until the
// process ends.
bool UnpinSlab(const CudaDriver* driver, CUcontext context, std::byte* slab, uint64_t bytes);

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_PINNED_SLAB_H_
