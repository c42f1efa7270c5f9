// SharedCapacity: the one account of the tiers' capacity, shared by the devices of a process. Each device
// promises here the bytes that its live blocks need beyond its GPU. The sum of all promises must fit the
// capacity of now: pinned host memory, and bytes that the file systems have allocated for the spill files.
// What could still be pinned or grown counts only after Grow.
//
// DeviceResidency promises on the thread of an allocation or a free; Evictor asks for copies on the device's
// thread. HostPool and SpillStore decide where the bytes lie. A promise fails when the tiers are full; Grow
// fails when no tier can grow.

#ifndef SPILLWAY_ALLOCATOR_TIER_SHARED_CAPACITY_H_
#define SPILLWAY_ALLOCATOR_TIER_SHARED_CAPACITY_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "allocator/tier/host_pool.h"
#include "io/os/atomic.h"
#include "io/spill_store.h"

namespace spillway::allocator {

// Any thread. It has no lock; a device promises under the lock of its block table.
class SharedCapacity {
 public:
  // A null tier does not exist.
  SharedCapacity(HostPool* host, io::SpillStore* disk) : host_(host), disk_(disk) {
    if (disk_ != nullptr) disk_->SetPromised([this] { return PromisedOfDisk(); });
    if (host_ != nullptr) host_->SetFits([this](uint64_t less, uint64_t more) { return Fits(less, more); });
  }
  ~SharedCapacity() {
    if (disk_ != nullptr) disk_->SetPromised(nullptr);
    if (host_ != nullptr) host_->SetFits(nullptr);
  }
  SharedCapacity(const SharedCapacity&) = delete;
  SharedCapacity& operator=(const SharedCapacity&) = delete;

  // Capacity of each tier now. The disk's falls when a directory closes; promises made before then stay. Host
  // memory's falls when other processes are due what is not promised, or has its place on the disk.
  uint64_t host_bytes() const { return host_ == nullptr ? 0 : host_->storage_capacity_bytes(); }
  uint64_t disk_bytes() const { return disk_ == nullptr ? 0 : disk_->capacity_bytes(); }
  bool has_disk() const { return disk_ != nullptr; }
  // The most that the host tier may become. How far files can grow is known only once they have grown.
  uint64_t host_cap_bytes() const { return host_ == nullptr ? 0 : host_->storage_cap_bytes(); }
  // Whether a tier may grow, be it by what other processes are to give back. Only Grow finds out whether it
  // does.
  bool CanGrow() const {
    return disk_ != nullptr || (host_ != nullptr && host_bytes() < host_->storage_due_bytes());
  }
  // Bytes that may still be promised, as far as is known: of what host memory may become and the disk has. Files
  // that grow are taken to grow on: UINT64_MAX.
  uint64_t Unpromised() const {
    if (disk_bytes() > 0) return UINT64_MAX;
    const uint64_t most = std::max(host_bytes(), host_cap_bytes());
    return most - std::min(most, promised_bytes());
  }
  // Sum of the promises of all devices.
  uint64_t promised_bytes() const { return promised_.load(); }

  // Called by a device that found no capacity although it was promised: the other devices then give up clean
  // copies. Returns the count of such calls, which each device compares with the last count that it saw.
  uint64_t AskForCopies() { return copies_asked_.fetch_add(1) + 1; }
  uint64_t copies_asked() const { return copies_asked_.load(); }

  // Changes one device's promise from `before` to `after` bytes. False, and nothing changes, when the promise
  // would grow and all promises together would exceed the capacity.
  bool Change(uint64_t before, uint64_t after) {
    if (after <= before) {
      promised_.fetch_sub(before - after);
      return true;
    }
    const uint64_t more = after - before;
    const uint64_t capacity = host_bytes() + disk_bytes();
    uint64_t promised = promised_.load();
    do {
      if (promised > capacity || more > capacity - promised) return false;
    } while (!promised_.compare_exchange_weak(promised, promised + more));
    // SpillStore and HostPool lower their capacity and then read the promises. Here it is the other way round,
    // so that one of the two sees the other's change.
    if (promised + more > host_bytes() + disk_bytes()) {
      promised_.fetch_sub(more);
      return false;
    }
    if (disk_ != nullptr) disk_->NotePromise(PromisedOfDisk());
    return true;
  }

  // Waits until promises can grow by `more` bytes. Pins host memory first, then grows files. Another device
  // may take the capacity first: after OK the caller tries Change again, which may fail. The error is that of
  // the tier that cannot grow. Any thread, no lock held.
  absl::Status Grow(uint64_t more) {
    const uint64_t wanted = promised_.load() + more;
    absl::Status pinned;
    if (host_ != nullptr && disk_ != nullptr) {
      host_->AskFor(wanted);  // nobody waits for what other processes are to give back
      pinned = host_->GrowStorageTo(std::min(wanted, host_cap_bytes()));
    } else if (host_ != nullptr) {
      pinned = host_->GrowStorageTo(wanted);
    }
    if (!pinned.ok() && !absl::IsResourceExhausted(pinned)) return pinned;
    const uint64_t host = host_bytes();  // once: it changes at any time
    if (wanted <= host) return absl::OkStatus();
    if (disk_ != nullptr) return disk_->GrowTo(wanted - host);
    return absl::ResourceExhaustedError("the host tier is full and there is no disk tier" +
                                        (pinned.ok() ? "" : ": " + std::string(pinned.message())));
  }

 private:
  // Whether the promises fit without `less` bytes of the host tier's capacity. If not, the disk is asked for
  // what is missing, with what `more` bytes less will take, and the host tier tries again later.
  bool Fits(uint64_t less, uint64_t more) {
    const uint64_t promised = promised_.load();
    const uint64_t host = host_bytes() - less;  // only the host tier lowers it, and asks
    if (promised <= host + disk_bytes()) return true;
    if (disk_ != nullptr) disk_->AskFor(promised - host + std::min(more, host));
    return false;
  }

  // The part of the promises that exceeds the host tier.
  uint64_t PromisedOfDisk() const {
    const uint64_t host = host_bytes();
    const uint64_t promised = promised_.load();
    return promised > host ? promised - host : 0;
  }

  HostPool* const host_;
  io::SpillStore* const disk_;
  os::Atomic<uint64_t> promised_{0};      // pairs with SpillStore's capacity, see Change
  os::Atomic<uint64_t> copies_asked_{0};  // a count on its own: orders nothing else
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_SHARED_CAPACITY_H_
