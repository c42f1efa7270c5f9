// SharedCapacity: the one account of the tiers' capacity, shared by the devices of a process. Each device
// promises here the bytes that its live blocks need beyond its GPU. The sum of all promises must fit the
// present capacity: pinned host memory, and the bytes that the file systems have allocated for the spill
// files. Memory that could still be pinned and files that could still grow count only after Grow.
//
// The account is one table: a row for each tier, and the promises. DeviceResidency promises on the thread of
// an allocation or a free. HostPool lets its row grow; SpillStore reports its own, and asks before it gives
// space back to a disk. The tiers alone know where the bytes lie. A promise fails when the tiers are full;
// one that needs the disk also fails when the write budget is spent. Grow fails when no tier can grow.

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

// Any thread, with the lock of a block table or of the store.
class SharedCapacity final : public io::CapacityOwner {
 public:
  // A null tier does not exist. `writes` bounds the writes to the disk; null means no bound. All must outlive
  // this object.
  SharedCapacity(HostPool* host, io::SpillStore* disk, const io::WriteBudget* writes = nullptr);
  ~SharedCapacity() override;
  SharedCapacity(const SharedCapacity&) = delete;
  SharedCapacity& operator=(const SharedCapacity&) = delete;

  // Present capacity of each tier. Host memory's only grows. The disk's falls when a directory closes;
  // promises made before then stay.
  uint64_t host_bytes() const { return host_ == nullptr ? 0 : host_->storage_capacity_bytes(); }
  uint64_t disk_bytes() const { return disk_ == nullptr ? 0 : disk_->capacity_bytes(); }
  bool has_disk() const { return disk_ != nullptr; }
  // Whether the write budget is spent. The disk then promises no more than it promised at most before, so
  // that a job that runs goes on.
  bool writes_spent() const { return writes_ != nullptr && writes_->spent(); }
  // Bytes a second that may be written to the disk in the long run; 0 when no budget bounds them now.
  double WritesPerSecond() const { return writes_spent() ? writes_->bytes_per_second() : 0; }
  // Whether a tier may grow. Only Grow finds out whether it does: others of the node may have ended, or taken
  // more.
  bool CanGrow() const;
  // Bytes that may still be promised, as far as is known: of what host memory may become and the disk has.
  // Files that can grow are assumed to grow on: UINT64_MAX.
  uint64_t Unpromised() const;
  // The same for the present capacity of the tiers.
  uint64_t UnpromisedNow() const;
  // Sum of the promises of all devices.
  uint64_t promised_bytes() const;

  // Called by a device that found no capacity although it was promised; the other devices then give up clean
  // copies. Returns the count of such calls, which each device compares with the last count that it saw.
  uint64_t AskForCopies() { return copies_asked_.fetch_add(1) + 1; }
  uint64_t copies_asked() const { return copies_asked_.load(); }

  // Changes one device's promise from `before` to `after` bytes. Returns false, and changes nothing, when the
  // promise would grow and all promises together would exceed the capacity.
  bool Change(uint64_t before, uint64_t after);

  // Waits until promises can grow by `more` bytes. Pins host memory first, then grows files. Another device
  // may take the capacity first: after OK the caller tries Change again, which may fail. The error is that of
  // the tier that cannot grow. The caller has no lock.
  absl::Status Grow(uint64_t more);

  // CapacityOwner's methods, for the disk.
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
  uint64_t most_of_disk_ ABSL_GUARDED_BY(mu_) = 0;  // most that was ever promised there
  os::Atomic<uint64_t> copies_asked_{0};            // a count on its own: orders nothing else
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_SHARED_CAPACITY_H_
