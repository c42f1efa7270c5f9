// What a Residency is built from: plain values, read from the environment by integration/engine alone.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_OPTIONS_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "allocator/driver/cuda_driver.h"
#include "policy/trace/units.h"

namespace spillway::io {
class SpillStore;
}
namespace spillway::os {
class WaitList;
}
namespace spillway::policy {
struct MigrationPlan;
class WriteFacts;
}  // namespace spillway::policy

namespace spillway::allocator {

class AddressMap;
class AuditObserver;
class HashCode;
class HostPool;
class LaunchObserver;
class LeavePermission;
class Refusals;
class SpillRoom;

struct ResidencyOptions {
  int device = 0;                   // ordinal
  uint64_t budget_bytes = 0;        // SPILLWAY_GPU_MEMORY: our chunks and others' allocations
  uint64_t others_share_bytes = 0;  // of the budget; 0 = 2 %, at least 16 MiB
  bool evict = true;                // false: SPILLWAY_ON_FULL=error, observe mode, or a hook that is missing
  bool map_at_once = false;         // blocks have memory from their allocation on: launches may go unseen
  uint64_t free_reserve_bytes = 0;  // background eviction keeps this much free; 0 = 1/16 of the budget
  uint64_t run_ahead_bytes = 0;     // bytes used by uncompleted launches once spilling began; 0 = a quarter
  size_t kept_addresses = 4096;     // of freed blocks; four more for each live block. At least 1
};

struct ResidencyParts {
  const CudaDriver* driver = nullptr;
  CUcontext context = nullptr;
  AddressMap* addresses = nullptr;
  HostPool* host = nullptr;        // pinned memory shared by the process's devices: host tier and staging
  io::SpillStore* disk = nullptr;  // null: no disk tier
  SpillRoom* room = nullptr;       // account of `host` and `disk`, shared by devices; null: this one's alone
  LaunchObserver* observer = nullptr;           // the recorder; null: none
  const LeavePermission* permission = nullptr;  // blocks that it refuses stay; null: all may leave
  // Words for the user when a launch that names so many blocks is refused for want of room: what it is and what would
  // make it fit. No lock is held. Null: none.
  std::function<std::string(uint64_t tag, size_t blocks)> refusal_advice;
  AuditObserver* audit = nullptr;  // not null: audit mode, which tells it what it finds
  os::WaitList* waits = nullptr;   // where waits are entered; null: a list of its own, which nobody reads out
  // What a launch of that tag is called, for lines about waits. No lock is held. Null: no name.
  std::function<std::string(uint64_t tag)> name_of_launch;
  HashCode* hash_code = nullptr;  // the content hash for the device; null: every eviction writes
  Refusals* refusals = nullptr;   // where the words of refusals go, the process's; null: this device's alone
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_OPTIONS_H_
