// Tiers: the parts that all devices of the process share: addresses for blocks, pinned host memory, spill
// files, and the account of how much of the last two may be promised. Runtime starts it with the first
// device, holding its lock; its parts are fixed after that, and any thread may use them. A directory that the
// user named and that cannot be used fails the start with a message that begins with the setting. If none was
// named, there is a warning and no disk. An error of the driver fails the start as it is.

#ifndef SPILLWAY_INTEGRATION_ENGINE_TIERS_H_
#define SPILLWAY_INTEGRATION_ENGINE_TIERS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/memory/address_map.h"
#include "allocator/tier/host_pool.h"
#include "allocator/tier/shared_capacity.h"
#include "integration/settings/settings.h"
#include "io/os/wait.h"
#include "io/store/node_share.h"
#include "io/store/spill_store.h"
#include "io/store/write_budget.h"

namespace spillway::integration {

class Tiers {
 public:
  // All of them must outlive this object.
  Tiers(const Settings* settings, const allocator::CudaDriver* driver, os::WaitList* waits)
      : settings_(*settings), driver_(driver), waits_(waits) {}

  // Creates the parts that do not exist yet: those of a failed start serve the next. `device_bytes`: memory
  // of the device that starts, by which the address space is sized. `context`: the one in which host memory
  // is pinned. One thread at a time.
  absl::Status Start(CUcontext context, uint64_t device_bytes);

  // ---- After Start.

  allocator::AddressMap* addresses() const { return addresses_.get(); }
  allocator::HostPool* host() const { return host_.get(); }
  io::SpillStore* disk() const { return disk_.get(); }       // null: there is no disk tier
  io::WriteBudget* writes() const { return writes_.get(); }  // null: no budget bounds them
  allocator::SharedCapacity* capacity() const { return capacity_.get(); }
  uint64_t host_cap_bytes() const { return host_cap_bytes_; }                 // staging included
  const std::vector<std::string>& disk_paths() const { return disk_paths_; }  // as the user or we named them

  // ---- At any time; thread-safe.

  // Returns the device in whose address space `address` lies, whether or not a block is there; -1: not one of
  // ours.
  int DeviceOf(const void* address) const;

  // ---- At the end.

  // Ends the disk's transfers within `disk_limit` and host memory within 0.2 s, whatever a driver or a disk
  // does.
  void Shutdown(std::chrono::milliseconds disk_limit);
  // Called in a forked child, on its only thread: closes what the child must not share with its parent.
  void AbandonAfterFork();

 private:
  absl::Status StartDisk();
  absl::Status StartHost(CUcontext context);
  allocator::HostReach FindReach(CUcontext context) const;
  void MakeWriteBudget(const WriteLimit& limit);
  absl::Status ReserveAddresses(uint64_t device_bytes);

  const Settings& settings_;
  const allocator::CudaDriver* const driver_;
  os::WaitList* const waits_;
  std::vector<std::string> disk_paths_;
  std::unique_ptr<io::WriteBudget> writes_;
  std::unique_ptr<io::SpillStore> disk_;
  std::unique_ptr<io::NodeShare> host_share_;  // used by host_ alone, except for its end in a forked child
  std::unique_ptr<allocator::HostPool> host_;
  uint64_t host_cap_bytes_ = 0;
  std::unique_ptr<allocator::SharedCapacity> capacity_;  // of all devices together
  std::unique_ptr<allocator::AddressMap> addresses_;
  std::atomic<const allocator::AddressMap*> addresses_ready_{
      nullptr};  // released by Start, acquired by DeviceOf
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_TIERS_H_
