#include "allocator/tier/shared_capacity.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace spillway::allocator {
namespace {

absl::Status NoMoreWrites(const io::WriteBudget& writes) {
  const auto minutes = std::chrono::ceil<std::chrono::minutes>(writes.UntilFree()).count();
  return absl::ResourceExhaustedError(
      "the write budget (SPILLWAY_WRITE_BUDGET) is spent: the disk takes no more blocks than it has had, for "
      "another " +
      std::to_string(minutes) + " min at least");
}

}  // namespace

SharedCapacity::SharedCapacity(HostPool* host, io::SpillStore* disk, const io::WriteBudget* writes)
    : host_(host), disk_(disk), writes_(writes) {
  if (disk_ != nullptr) disk_->SetOwner(this);
}

SharedCapacity::~SharedCapacity() {
  if (disk_ != nullptr) disk_->SetOwner(nullptr);
}

bool SharedCapacity::CanGrow() const {
  return disk_ != nullptr ||
         (host_ != nullptr && host_bytes() < host_->Limit(HostUse::kStorage) * host_->buffer_bytes());
}

uint64_t SharedCapacity::Unpromised() const {
  if (disk_bytes() > 0 && !writes_spent()) return UINT64_MAX;
  const uint64_t most = std::max(host_bytes(), host_ == nullptr ? 0 : host_->storage_cap_bytes());
  return most - std::min(most, promised_bytes());
}

uint64_t SharedCapacity::UnpromisedNow() const {
  const os::MutexLock lock(&mu_);
  const uint64_t capacity = CapacityLocked();
  return capacity - std::min(capacity, promised_bytes_);
}

uint64_t SharedCapacity::promised_bytes() const {
  const os::MutexLock lock(&mu_);
  return promised_bytes_;
}

bool SharedCapacity::Change(uint64_t before, uint64_t after) {
  uint64_t of_disk;
  {
    const os::MutexLock lock(&mu_);
    if (after > before) {
      const uint64_t more = after - before;
      const uint64_t capacity = CapacityLocked();
      if (promised_bytes_ > capacity || more > capacity - promised_bytes_) return false;
    }
    promised_bytes_ = promised_bytes_ - before + after;
    if (after <= before) return true;
    of_disk = PromisedOfDiskLocked();
    most_of_disk_ = std::max(most_of_disk_, of_disk);
  }
  if (disk_ != nullptr) disk_->RecordPromise(of_disk);
  return true;
}

uint64_t SharedCapacity::most_of_disk() const {
  const os::MutexLock lock(&mu_);
  return most_of_disk_;
}

absl::Status SharedCapacity::Grow(uint64_t more) {
  const uint64_t wanted = promised_bytes() + more;
  absl::Status pinned;
  if (host_ != nullptr && disk_ != nullptr) {
    host_->AskFor(wanted);  // looks at what other processes leave
    pinned = host_->GrowStorageTo(std::min(wanted, host_->storage_cap_bytes()));
  } else if (host_ != nullptr) {
    pinned = host_->GrowStorageTo(wanted);
  }
  if (!pinned.ok() && !absl::IsResourceExhausted(pinned)) return pinned;
  const uint64_t host = host_bytes();  // once: it changes at any time
  if (wanted <= host) return absl::OkStatus();
  if (disk_ != nullptr && writes_spent() && wanted - host > most_of_disk()) return NoMoreWrites(*writes_);
  if (disk_ != nullptr) return disk_->GrowTo(wanted - host);
  return absl::ResourceExhaustedError("the host tier is full and there is no disk tier" +
                                      (pinned.ok() ? "" : ": " + std::string(pinned.message())));
}

// ---- The disk's row.

// A directory that closes takes promised capacity with it. Promises made before wait for it.
void SharedCapacity::SetCapacity(uint64_t bytes) {
  const os::MutexLock lock(&mu_);
  disk_bytes_ = bytes;
}

bool SharedCapacity::LowerCapacity(uint64_t bytes) {
  const os::MutexLock lock(&mu_);
  if (PromisedOfDiskLocked() > bytes) return false;
  disk_bytes_ = std::min(disk_bytes_, bytes);
  return true;
}

uint64_t SharedCapacity::PromisedBytes() const {
  const os::MutexLock lock(&mu_);
  return PromisedOfDiskLocked();
}

// A disk whose writes must wait counts with the most that it has been promised.
uint64_t SharedCapacity::CapacityLocked() const {
  return host_bytes() + (writes_spent() ? std::min(disk_bytes_, most_of_disk_) : disk_bytes_);
}

// The promises that exceed the host tier.
uint64_t SharedCapacity::PromisedOfDiskLocked() const {
  const uint64_t host = host_bytes();
  return promised_bytes_ > host ? promised_bytes_ - host : 0;
}

}  // namespace spillway::allocator
