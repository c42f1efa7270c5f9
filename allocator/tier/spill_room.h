// SpillRoom: the one account of bytes off the GPU that the devices of a process share. Each device promises here what
// its live blocks need beyond its GPU; the sum must fit what there is: host memory that is pinned and bytes that spill
// files hold allocated. What could still be pinned or grown is no promise; Grow makes it room. Where the bytes then lie
// is the business of HostPool and SpillStore.

#ifndef SPILLWAY_ALLOCATOR_TIER_SPILL_ROOM_H_
#define SPILLWAY_ALLOCATOR_TIER_SPILL_ROOM_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "allocator/tier/host_pool.h"
#include "io/os/atomic.h"
#include "io/spill_store.h"

namespace spillway::allocator {

// Any thread, without a lock: devices promise under their own.
class SpillRoom {
 public:
  // Either may be null: that tier does not exist.
  SpillRoom(HostPool* host, io::SpillStore* disk) : host_(host), disk_(disk) {
    if (disk_ != nullptr) disk_->SetPromised([this] { return PromisedOfDisk(); });
  }
  ~SpillRoom() {
    if (disk_ != nullptr) disk_->SetPromised(nullptr);
  }
  SpillRoom(const SpillRoom&) = delete;
  SpillRoom& operator=(const SpillRoom&) = delete;

  // Bytes that there are now. The disk's fall when a directory closes; promises made before then stay.
  uint64_t host_bytes() const { return host_ == nullptr ? 0 : host_->storage_room_bytes(); }
  uint64_t disk_bytes() const { return disk_ == nullptr ? 0 : disk_->room_bytes(); }
  // What pinned host memory may become. What files may become only the disk tells, when they grow.
  uint64_t host_cap_bytes() const { return host_ == nullptr ? 0 : host_->storage_cap_bytes(); }
  // Whether the tiers may come to hold more than they do; whether they will, Grow finds out.
  bool CanGrow() const { return disk_ != nullptr || host_bytes() < host_cap_bytes(); }
  // What all devices have promised.
  uint64_t promised_bytes() const { return promised_.load(); }

  // A device found no room although it was promised: the others give up copies that they need not keep. Returns the
  // count of such calls; each device looks at it now and then.
  uint64_t AskForCopies() { return copies_asked_.fetch_add(1) + 1; }
  uint64_t copies_asked() const { return copies_asked_.load(); }

  // One device's promise goes from `before` to `after` bytes. False, and nothing changes, when it would grow and all
  // promises together would not fit.
  bool Change(uint64_t before, uint64_t after) {
    if (after <= before) {
      promised_.fetch_sub(before - after);
      return true;
    }
    const uint64_t more = after - before;
    const uint64_t room = host_bytes() + disk_bytes();
    uint64_t promised = promised_.load();
    do {
      if (promised > room || more > room - promised) return false;
    } while (!promised_.compare_exchange_weak(promised, promised + more));
    // The store lowers its room and then looks at what is promised; the other way round here: one of both sees it.
    if (promised + more > host_bytes() + disk_bytes()) {
      promised_.fetch_sub(more);
      return false;
    }
    if (disk_ != nullptr) disk_->NotePromise(PromisedOfDisk());
    return true;
  }

  // Waits until promises can grow by `more` bytes, as far as this caller knows: others may take it first, so Change is
  // tried again after OK, and may fail. Pins first, then grows files. The error is that of the tier that gives no more.
  // No lock held.
  absl::Status Grow(uint64_t more) {
    const uint64_t wanted = promised_.load() + more;
    absl::Status pinned;
    if (host_ != nullptr) pinned = host_->GrowStorageTo(std::min(wanted, host_cap_bytes()));
    if (!pinned.ok() && !absl::IsResourceExhausted(pinned)) return pinned;
    if (wanted <= host_bytes()) return absl::OkStatus();
    if (disk_ != nullptr) return disk_->GrowTo(wanted - host_bytes());
    return absl::ResourceExhaustedError("the host tier is full and there is no disk tier");
  }

 private:
  // What of the promises the disk's room must hold.
  uint64_t PromisedOfDisk() const {
    const uint64_t host = host_bytes();
    const uint64_t promised = promised_.load();
    return promised > host ? promised - host : 0;
  }

  HostPool* const host_;
  io::SpillStore* const disk_;
  os::Atomic<uint64_t> promised_{0};      // Change pairs with the store's room, see there
  os::Atomic<uint64_t> copies_asked_{0};  // only ever read and changed by itself
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_SPILL_ROOM_H_
