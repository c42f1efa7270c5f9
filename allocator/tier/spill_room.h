// SpillRoom: the one account of bytes off the GPU that the devices of a process share: the host tier's capacity and the
// disk tier's room. Each device promises here what its live blocks need beyond its GPU; the sum must fit. Where
// the bytes then lie is the business of HostPool and SpillStore.

#ifndef SPILLWAY_ALLOCATOR_TIER_SPILL_ROOM_H_
#define SPILLWAY_ALLOCATOR_TIER_SPILL_ROOM_H_

#include <cstdint>

#include "allocator/tier/host_pool.h"
#include "io/os/atomic.h"

namespace spillway::allocator {

// Any thread, without a lock: devices promise under their own.
class SpillRoom {
 public:
  // `host` may be null: no host tier. `disk_bytes`: room of the disk tier.
  SpillRoom(const HostPool* host, uint64_t disk_bytes) : host_(host), disk_bytes_(disk_bytes) {}
  SpillRoom(const SpillRoom&) = delete;
  SpillRoom& operator=(const SpillRoom&) = delete;

  // Bytes; the host's may fall when the system refuses memory, and promises made before then stay.
  uint64_t host_bytes() const { return host_ == nullptr ? 0 : host_->storage_capacity(); }
  uint64_t disk_bytes() const { return disk_bytes_; }
  // Whether the tiers may come to hold more than they do, and making them hold `bytes` more than is promised.
  bool CanGrow() const { return false; }
  absl::Status Grow(uint64_t bytes) { return absl::OkStatus(); }
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
    const uint64_t room = host_bytes() + disk_bytes_;
    uint64_t promised = promised_.load();
    do {
      if (promised > room || more > room - promised) return false;
    } while (!promised_.compare_exchange_weak(promised, promised + more));
    return true;
  }

 private:
  const HostPool* const host_;
  const uint64_t disk_bytes_;
  os::Atomic<uint64_t> promised_{0};      // only ever read and changed by itself: pairs with nothing else
  os::Atomic<uint64_t> copies_asked_{0};  // likewise
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_SPILL_ROOM_H_
