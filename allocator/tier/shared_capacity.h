// SharedCapacity: the one account of the tiers' capacity, shared by the devices of a process. Each device
// promises here the bytes that its live blocks need beyond its GPU. The sum of all promises must fit the
// capacity of now: pinned host memory, and bytes that the file systems have allocated for the spill files.
// What could still be pinned or grown counts only after Grow.
//
// One table: a row for each tier, and the promises. DeviceResidency promises on the thread of an allocation
// or a free; HostPool grows its row; SpillStore reports its own, and asks before it gives space back to a
// disk. Where the bytes lie is the tiers' affair. A promise fails when the tiers are full, and where it needs
// the disk also when the write budget is; Grow fails when no tier can grow.

#ifndef SPILLWAY_ALLOCATOR_TIER_SHARED_CAPACITY_H_
#define SPILLWAY_ALLOCATOR_TIER_SHARED_CAPACITY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "allocator/tier/host_pool.h"
#include "io/os/atomic.h"
#include "io/os/sync.h"
#include "io/store/spill_store.h"
#include "io/store/write_budget.h"

namespace spillway::allocator {

// Any thread, with the lock of a block table or of the store held.
class SharedCapacity final : public io::CapacityOwner {
 public:
  // A null tier does not exist. `writes` bounds what is written to the disk; null: nothing does. All outlive
  // it.
  SharedCapacity(HostPool* host, io::SpillStore* disk, const io::WriteBudget* writes = nullptr);
  ~SharedCapacity() override;
  SharedCapacity(const SharedCapacity&) = delete;
  SharedCapacity& operator=(const SharedCapacity&) = delete;

  // Capacity of each tier now. Host memory's only grows. The disk's falls when a directory closes; promises
  // made before then stay.
  uint64_t host_bytes() const { return host_ == nullptr ? 0 : host_->storage_capacity_bytes(); }
  uint64_t disk_bytes() const { return disk_ == nullptr ? 0 : disk_->capacity_bytes(); }
  bool has_disk() const { return disk_ != nullptr; }
  // The write budget is used up: on the disk no more is promised than was at most before. So a job that runs
  // goes on.
  bool writes_spent() const { return writes_ != nullptr && writes_->spent(); }
  // What may be written to the disk in the long run, bytes a second; 0: no budget bounds it now.
  double WritesPerSecond() const { return writes_spent() ? writes_->bytes_per_second() : 0; }
  // Whether a tier may grow. Only Grow finds out whether it does: others of the node may have ended, or taken
  // more.
  bool CanGrow() const;
  // Bytes that may still be promised, as far as is known: of what host memory may become and the disk has.
  // Files that grow are taken to grow on: UINT64_MAX.
  uint64_t Unpromised() const;
  // The same of what the tiers hold now.
  uint64_t UnpromisedNow() const;
  // Sum of the promises of all devices.
  uint64_t promised_bytes() const;

  // Called by a device that found no capacity although it was promised: the other devices then give up clean
  // copies. Returns the count of such calls, which each device compares with the last count that it saw.
  uint64_t AskForCopies() { return copies_asked_.fetch_add(1) + 1; }
  uint64_t copies_asked() const { return copies_asked_.load(); }

  // Changes one device's promise from `before` to `after` bytes. False, and nothing changes, when the promise
  // would grow and all promises together would exceed the capacity.
  bool Change(uint64_t before, uint64_t after);

  // Waits until promises can grow by `more` bytes. Pins host memory first, then grows files. Another device
  // may take the capacity first: after OK the caller tries Change again, which may fail. The error is that of
  // the tier that cannot grow. No lock held.
  absl::Status Grow(uint64_t more);

  // CapacityOwner's, of the disk.
  void SetCapacity(uint64_t bytes) override;
  bool LowerCapacity(uint64_t bytes) override;
  uint64_t PromisedBytes() const override;

 private:
  uint64_t most_of_disk() const;
  uint64_t CapacityLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t PromisedOfDiskLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  HostPool* const host_;
  io::SpillStore* const disk_;
  const io::WriteBudget* const writes_;
  mutable os::Mutex mu_{os::LockRank::kCapacity};
  uint64_t disk_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // the disk's row, as reported
  uint64_t promised_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t most_of_disk_ ABSL_GUARDED_BY(mu_) = 0;  // that was ever promised there
  os::Atomic<uint64_t> copies_asked_{0};            // a count on its own: orders nothing else
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_SHARED_CAPACITY_H_
