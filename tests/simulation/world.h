// World: one device of the product in the simulation, with its tiers, built as integration/engine/runtime
// builds it, by settings that a seed draws. It checks the invariants that are visible from outside.

#ifndef SPILLWAY_TESTS_SIMULATION_WORLD_H_
#define SPILLWAY_TESTS_SIMULATION_WORLD_H_

#include <cstdint>
#include <memory>
#include <string>

#include "allocator/driver/device_hash.h"
#include "allocator/memory/address_map.h"
#include "allocator/residency/device_residency.h"
#include "allocator/tier/host_pool.h"
#include "allocator/tier/shared_capacity.h"
#include "io/store/spill_store.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/gpu.h"
#include "tests/simulation/job_share.h"
#include "tests/simulation/pause_gate.h"
#include "tests/simulation/random.h"

namespace spillway::simulation {

struct WorldSettings {
  uint64_t target_chunks = 16;   // of the budget
  uint64_t lendable_chunks = 0;  // beyond the budget
  uint64_t host_buffers = 32;    // 0: no host tier
  uint64_t disk_slots = 0;       // 0: no disk tier
  uint64_t reserve_chunks = 1;   // free_reserve_bytes
  uint64_t run_ahead_chunks = 8;
  bool hash = true;
  bool asymmetric_barrier = true;
  int slow_gpu_one_in = 0;
  int slow_disk_one_in = 0;
  int preempt_at_points_one_in = 0;  // at the product's delay points (allocator/memory/test_points.h)
  uint64_t kept_addresses = 4096;
  uint32_t largest_handle = 64;
  bool reach = false;            // kernels reach the host tier
  bool soft = false;             // and what was moved there (SPILLWAY_REACH=on)
  bool verify = false;           // what comes back is compared (SPILLWAY_VERIFY), and is wrong now and then
  bool shared = false;           // jobs share the device (SPILLWAY_SHARE=gpu)
  int64_t wait_limit_nanos = 0;  // SPILLWAY_WAIT_LIMIT; 0: none

  static WorldSettings Draw(Random* random);
  std::string Describe() const;
};

class World {
 public:
  World(const WorldSettings& settings, Random* random);
  ~World();  // shuts the residency down
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  allocator::DeviceResidency& residency() { return *residency_; }
  allocator::Core* core() { return residency_->core(); }
  allocator::AddressMap& addresses() { return *addresses_; }
  allocator::HostPool& host() { return *host_; }
  io::SpillStore* disk() { return disk_.get(); }
  Gpu& gpu() { return *gpu_; }
  PauseGateOfJob& pause_gate() { return pause_gate_; }
  ShareOfJob& share() { return share_; }
  Disk* drives() { return drives_.get(); }  // null: none
  const WorldSettings& settings() const { return settings_; }
  // Blocks, chunks and capacity, for a failure's report. To be called without a lock.
  std::string Describe();
  // In a launch's own call, while soft evictions are on: whether a kernel that does not name the block may
  // use it. Not what is on the disk, or arrives from there.
  bool IsReachable(CUdeviceptr address);
  // A chunk is as large as a slot, as it is in the product.
  static constexpr uint64_t chunk_bytes() { return io::kSlotBytes; }

 private:
  void MakeDisk(Random* random);
  bool ArrivesWrong(CUdeviceptr address);
  void CheckUnderLock();
  void CheckAnytime();

  const WorldSettings settings_;
  uint64_t copies_in_ = 0;
  std::vector<allocator::Block*> blocks_;  // as of the last look under the lock
  os::WaitList waits_;
  PauseGateOfJob pause_gate_;
  ShareOfJob share_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<Disk> drives_;
  std::unique_ptr<allocator::HashCode> hash_code_;
  std::unique_ptr<allocator::AddressMap> addresses_;
  std::unique_ptr<allocator::HostPool> host_;
  std::unique_ptr<io::SpillStore> disk_;
  std::unique_ptr<allocator::SharedCapacity> capacity_;
  std::unique_ptr<allocator::DeviceResidency> residency_;
};

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_WORLD_H_
