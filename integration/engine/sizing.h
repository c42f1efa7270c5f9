// Sizes that the user does not set: budget, staging, address space. Arithmetic only: thread-safe, no call
// fails. The engine calls it when it opens, and so does `spillway doctor`.

#ifndef SPILLWAY_INTEGRATION_ENGINE_SIZING_H_
#define SPILLWAY_INTEGRATION_ENGINE_SIZING_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "allocator/tier/host_pool.h"

namespace spillway::integration {

inline constexpr uint64_t kChunkBytes = 2 << 20;

// The budget of one device if the user sets none: the free memory, less the reserve, plus the process's
// external memory, which the budget covers, too. The reserve is 3 %, at least 32 MiB, at most 1 GiB.
struct DeviceBudget {
  uint64_t bytes = 0;
  uint64_t reserve_bytes = 0;
};
DeviceBudget DefaultBudget(uint64_t free_bytes, uint64_t external_bytes);

// Returns the budget limited to `most_bytes`, including what may be lent of the reserve.
DeviceBudget LimitedBudget(const DeviceBudget& budget, uint64_t most_bytes);

// The memory of a device as a sum, in bytes. If the budget is all that was free, the parts make up the whole
// device. Otherwise the device has more, which is not the job's.
struct MemoryParts {
  uint64_t device_bytes = 0;
  uint64_t blocks_bytes = 0;   // of the budget, in whole chunks
  uint64_t process_bytes = 0;  // of the budget: for other memory of the process, with the rest of a chunk
  uint64_t reserve_bytes = 0;
  uint64_t taken_bytes = 0;  // by others, and by the job's context, when the budget was found; 0: not known

  uint64_t budget_bytes() const { return blocks_bytes + process_bytes; }
};
MemoryParts MemoryPartsOf(const DeviceBudget& budget, uint64_t device_bytes);
// Returns "168.00 MiB of 200.00 MiB (152.00 MiB for blocks, 16.00 MiB for other memory of the process; a
// reserve of ...)".
std::string Text(const MemoryParts& parts);

// Returns the host tier's cap if the user sets none: a quarter of what is available, shared by the node's
// ranks.
uint64_t DefaultHostCap(uint64_t available_bytes, int local_world_size);

// Returns one rank's equal share of what `ranks` ranks of a node share: whole chunks, at least one. 0 bytes
// stay 0.
uint64_t ShareOfRank(uint64_t bytes, int ranks);

// Returns how a cap is divided into staging and storage. A disk tier needs a few buffers of staging for each
// drive even if the cap is 0; 0 drives need none.
allocator::HostPool::Options HostPoolOptions(uint64_t cap_bytes, size_t drives);

// Returns the address space for each device, a power of two: eight times what can be live, within 64 GiB and
// 4 TiB, so that it does not fragment.
uint64_t AddressSpaceBytes(uint64_t device_total_bytes, uint64_t host_cap_bytes, uint64_t disk_bytes);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_SIZING_H_
