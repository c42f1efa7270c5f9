// The keepers of the store: one thread per directory. A keeper asks its file system how much is free, grows
// the file, and gives back space that was grown ahead and is not needed when the disk runs short. A disk that
// does not answer stops only its own keeper. The store's lock is never kept during a call of a file system.

#include <algorithm>
#include <memory>
#include <utility>

#include "io/os/log.h"
#include "io/os/thread.h"
#include "io/store/spill_store_impl.h"

namespace spillway::io {
namespace {

using os::kSecond;

constexpr int64_t kGrowthPause = kSecond;              // after a growth that was refused
constexpr int64_t kScanIntervalWanted = kSecond / 10;  // while a caller of GrowTo waits for capacity
constexpr int64_t kScanIntervalAsked = kSecond / 4;    // while an eviction lacks slots
constexpr int64_t kSurplusScanInterval = 5 * kSecond;  // while something could be given back
constexpr int64_t kSurplusCheckInterval = kSecond;
constexpr int64_t kSurplusAge = 2 * kSecond;  // time for a caller of GrowTo to promise its capacity
constexpr int64_t kForgetAsked = 5 * kSecond;
constexpr int64_t kStuck = kSecond;  // the result of a call that takes longer is not relied on
constexpr int64_t kNever = 3600 * kSecond;
constexpr uint64_t kAheadPart =
    16;  // ahead of need at most this part of the free space: a disk is not filled by it
constexpr uint64_t kGrowthByWriting = 32u << 20;

uint64_t WholeSlots(uint64_t bytes) { return bytes / kSlotBytes * kSlotBytes; }
uint64_t SlotsUp(uint64_t bytes) { return (bytes + kSlotBytes - 1) / kSlotBytes * kSlotBytes; }

}  // namespace

// ---- The wanted capacity.

void SpillStore::Impl::SetOwner(CapacityOwner* owner) {
  os::MutexLock lock(&mu_);
  owner_ = owner;
  if (owner_ != nullptr) owner_->SetCapacity(capacity_.load());
}

void SpillStore::Impl::PokeKeepers() {
  os::MutexLock lock(&mu_);
  PokeLocked();
}

void SpillStore::Impl::PokeLocked() {
  for (const auto& directory : directories_) directory->poked = true;
  keep_cv_.NotifyAll();
}

// Capacity for which a caller of GrowTo waits, or that an eviction lacks.
uint64_t SpillStore::Impl::WantedLocked() const {
  uint64_t wanted = asked_capacity_;
  for (const uint64_t demand : demands_) wanted = std::max(wanted, demand);
  return wanted;
}

// The largest of these demands that all directories together can meet; 0 when every such demand is already
// met.
uint64_t SpillStore::Impl::FeasibleLocked() const {
  uint64_t feasible = 0;
  const auto look_at = [this, &feasible](uint64_t wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (wanted > std::max(feasible, capacity_.load()) && CanGrowToLocked(wanted, 0) == CanGrow::kYes)
      feasible = wanted;
  };
  look_at(asked_capacity_);
  for (const uint64_t demand : demands_) look_at(demand);
  return feasible;
}

// Capacity that must be kept.
uint64_t SpillStore::Impl::NeededLocked() const {
  if (owner_ != nullptr) return owner_->PromisedBytes();
  uint64_t in_use = 0;
  for (const auto& directory : directories_) {
    if (!IsUsable(*directory)) continue;
    const SlotTable& table = directory->table;
    in_use += uint64_t{table.slots().in_use_count() - table.moved_count()} * kSlotBytes;
  }
  return in_use;
}

uint64_t SpillStore::Impl::SpareLocked() const {
  const uint64_t capacity = capacity_.load();
  const uint64_t needed = std::max(NeededLocked(), WantedLocked());
  return capacity > needed ? capacity - needed : 0;
}

// Bytes that a directory keeps free ahead of need. Growing takes milliseconds, for which no transfer should
// wait.
uint64_t SpillStore::Impl::AheadOf(const Directory& directory) const {
  return WholeSlots(std::min(options_.growth_bytes / 2, directory.snapshot.growable.by_disk / kAheadPart));
}

bool SpillStore::Impl::StuckLocked(const Directory& directory) const {
  return directory.growing_since != 0 && options_.clock->NowNanos() - directory.growing_since > kStuck;
}

// Number of directories that may grow, as far as is known; at least 1.
size_t SpillStore::Impl::ActiveLocked() const {
  size_t active = 0;
  for (const auto& directory : directories_) {
    const bool known_full = directory->snapshot.at >= 0 && directory->snapshot.growable.bytes() < kSlotBytes;
    if (IsUsable(*directory) && !StuckLocked(*directory) && !known_full) ++active;
  }
  return std::max<size_t>(active, 1);
}

// ---- The thread.

void SpillStore::Impl::KeepLoop(Directory* directory) {
  mu_.Lock();
  int64_t turn_at = 0;
  while (!stopped_) {
    const int64_t now = options_.clock->NowNanos();
    if (!directory->poked && now < turn_at) {
      keep_cv_.WaitFor(&mu_, std::chrono::nanoseconds(turn_at - now));
      continue;
    }
    directory->poked = false;
    turn_at = TurnLocked(directory);
  }
  directory->closed_wait = nullptr;
  while (!close_files_) keep_cv_.Wait(&mu_);
  const bool in_use = directory->in_use;
  mu_.Unlock();
  if (!in_use) directory->file->Close();  // never returns on a disk that does not answer
  directory->order->Close();
  if (directory->share != nullptr) directory->share->Close();
  mu_.Lock();
  directory->keeper_ended = true;
  grown_cv_.NotifyAll();
  mu_.Unlock();
}

// Makes one turn of a keeper: looks, grows, gives back. Returns the time of the next turn unless the keeper
// is poked (clock, ns).
int64_t SpillStore::Impl::TurnLocked(Directory* directory) {
  const int64_t now = options_.clock->NowNanos();
  if (asked_capacity_ != 0 && now - asked_last_ > kForgetAsked) asked_capacity_ = 0;
  if (IsClosed(*directory)) return TurnOfClosedLocked(directory);
  directory->closed_wait = nullptr;
  if (WantedLocked() == 0 && NeededLocked() == 0 && directory->file_bytes == 0) return now + kNever;
  ScanLocked(directory);
  if (directory->disk_full && !ReopenLocked(directory)) return directory->full_until;
  while (!stopped_) {
    const uint64_t growth = GrowthLocked(*directory);
    if (growth == 0 || !GrowLocked(directory, growth)) break;
  }
  if (!stopped_) GiveBackLocked(directory);
  // Promises wake the keepers when they leave less than half of the bytes that are kept ahead.
  const uint64_t ahead = AheadOf(*directory) / 2;
  low_watermark_.store(capacity_.load() - std::min(capacity_.load(), ahead), std::memory_order_relaxed);
  return NextTurnLocked(*directory);
}

int64_t SpillStore::Impl::NextTurnLocked(const Directory& directory) const {
  const int64_t now = options_.clock->NowNanos();
  if (capacity_.load() < WantedLocked())
    return now + (demands_.empty() ? kScanIntervalAsked : kScanIntervalWanted);
  if (SpareLocked() / ActiveLocked() < AheadOf(directory) / 2) return now + kGrowthPause;
  if (directory.surplus_since != 0) return now + kSurplusCheckInterval;
  return now + (owner_ != nullptr ? kSurplusScanInterval : kNever);
}

// Asks for the present space; `most_bytes` is the limit by a shared cap.
SpillFile::Growable SpillStore::Impl::SpaceOf(const Directory& directory, uint64_t file_bytes,
                                              uint64_t most_bytes) const {
  const uint64_t cap =
      directory.share != nullptr ? std::max<uint64_t>(1, most_bytes) : directory.settings.cap_bytes;
  return directory.file->SpaceToGrow(file_bytes, cap, options_.disk_reserve_bytes);
}

void SpillStore::Impl::ScanLocked(Directory* directory) {
  if (directory->share != nullptr) {
    directory->share->Scan();
    directory->most_bytes = WholeSlots(directory->share->MostToTake(directory->settings.cap_bytes));
  }
  const uint64_t most_bytes = directory->most_bytes;
  Snapshot snapshot;
  snapshot.at = options_.clock->NowNanos();
  directory->growing_since = snapshot.at;
  const uint64_t size = directory->file_bytes;
  // A caller in GrowTo has entered its own wait.
  const bool entered = !demands_.empty() || WantedLocked() <= capacity_.load();
  mu_.Unlock();
  {
    std::unique_ptr<os::Wait> wait;
    if (!entered)
      wait = std::make_unique<os::Wait>(waits_, os::WaitKind::kDiskGrowth, directory->queue->place());
    snapshot.growable = SpaceOf(*directory, size, most_bytes);
  }
  mu_.Lock();
  directory->growing_since = 0;
  snapshot.free = snapshot.growable.by_disk;
  if (directory->snapshot.at >= 0 && snapshot.free >= directory->snapshot.free + kSlotBytes)
    gained_at_ = snapshot.at;
  // The file system refused growth lately, so the space that it reports as free is not available.
  if (snapshot.at < directory->next_growth_at) snapshot.growable.by_disk = 0;
  directory->snapshot = snapshot;
  grown_cv_.NotifyAll();
}

// Returns true when the directory is in use again.
bool SpillStore::Impl::ReopenLocked(Directory* directory) {
  const int64_t now = options_.clock->NowNanos();
  if (now < directory->full_until) return false;
  if (directory->snapshot.growable.by_disk < kSlotBytes) {
    directory->full_until = now + directory->full_pause;
    return false;
  }
  directory->disk_full = false;
  os::Log(os::LogLevel::kWarn, "path=" + directory->settings.path + " has space again");
  UpdateCapacityLocked();
  grown_cv_.NotifyAll();
  return true;
}

// ---- Growing.

uint64_t SpillStore::Impl::GrowthLocked(const Directory& directory) const {
  if (!IsUsable(directory) || options_.clock->NowNanos() < directory.next_growth_at) return 0;
  const uint64_t most =
      std::min(directory.file->grows_by_writing() ? kGrowthByWriting : SlotsUp(options_.growth_bytes),
               WholeSlots(directory.snapshot.growable.bytes()));
  if (capacity_.load() < WantedLocked()) return std::min(most, GrowthForNeedLocked(directory));
  return std::min(most, GrowthAheadLocked(directory));
}

// A directory grows up to an equal share of the wanted capacity, and by what the other directories cannot
// give. It does not grow while all together cannot meet the demand: such a demand is refused, and must not
// fill the disk first.
uint64_t SpillStore::Impl::GrowthForNeedLocked(const Directory& directory) const {
  const uint64_t wanted = FeasibleLocked();
  if (wanted == 0) return 0;
  const uint64_t share = SlotsUp(wanted / ActiveLocked());
  const auto up_to_share = [share](const Directory& one) { return share - std::min(share, one.file_bytes); };
  uint64_t missing = wanted - capacity_.load();
  uint64_t elsewhere = 0;
  for (const auto& other : directories_) {
    if (other.get() == &directory || !IsUsable(*other) || StuckLocked(*other)) continue;
    missing -= std::min(missing, other->growing_bytes);
    uint64_t gives = up_to_share(*other);
    if (other->snapshot.at >= 0) gives = std::min(gives, WholeSlots(other->snapshot.growable.bytes()));
    elsewhere += gives - std::min(gives, other->growing_bytes);
  }
  const uint64_t left_over = missing - std::min(missing, elsewhere);
  return SlotsUp(std::max(left_over, std::min(missing, up_to_share(directory))));
}

// All directories together keep so much ahead, and so does each by itself: without free slots of its own, its
// slots would have to go to the others, whose drives may be slower.
uint64_t SpillStore::Impl::GrowthAheadLocked(const Directory& directory) const {
  if (NeededLocked() == 0) return 0;
  const uint64_t ahead = AheadOf(directory);
  const uint64_t spare = SpareLocked() / ActiveLocked();
  if (spare < ahead / 2) return WholeSlots(ahead - spare);
  const uint64_t free = FreeBytesLocked(directory);
  return free < ahead / 2 ? WholeSlots(ahead - free) : 0;
}

uint64_t SpillStore::Impl::FreeBytesLocked(const Directory& directory) const {
  return uint64_t{directory.table.slots().free_count()} * kSlotBytes;
}

// Wakes the keepers of directories whose slots were taken faster than those of the others.
void SpillStore::Impl::PokeShortLocked() {
  for (const auto& directory : directories_) {
    if (directory->poked || directory->growing_bytes != 0 || GrowthLocked(*directory) == 0) continue;
    directory->poked = true;
    keep_cv_.NotifyAll();
  }
}

// Grows the file by `bytes`, or by as much as the disk has; returns false when it has nothing.
bool SpillStore::Impl::GrowLocked(Directory* directory, uint64_t bytes) {
  const uint64_t before = directory->file_bytes;
  directory->growing_bytes = bytes;
  directory->growing_since = options_.clock->NowNanos();
  const bool entered = !demands_.empty() || WantedLocked() <= capacity_.load();
  mu_.Unlock();
  NodeShare* const share = directory->share.get();
  // Another process may have taken the space since the snapshot.
  const bool ours = share == nullptr || share->Register(before + bytes, directory->settings.cap_bytes);
  if (!ours) bytes = 0;
  bool refused = !ours;
  absl::Status status;
  {
    std::unique_ptr<os::Wait> wait;
    if (!entered)
      wait = std::make_unique<os::Wait>(waits_, os::WaitKind::kDiskGrowth, directory->queue->place());
    while (bytes > 0) {
      status = directory->file->Grow(before + bytes, &ending_);
      if (status.ok() || ending_.load()) break;
      refused = true;  // a quota, or other processes took the space: try half as much
      bytes = WholeSlots(bytes / 2);
    }
  }
  if (refused)
    os::Log(os::LogLevel::kInfo,
            std::string(status.ok() ? "grew by less than was asked for" : status.message()));
  if (share != nullptr && ours && refused)
    share->Register(before + (status.ok() ? bytes : 0), directory->settings.cap_bytes);
  mu_.Lock();
  directory->growing_bytes = 0;
  directory->growing_since = 0;
  uint64_t& by_disk = directory->snapshot.growable.by_disk;
  uint64_t& by_limits = directory->snapshot.growable.by_limits;
  by_disk = refused ? 0 : by_disk - std::min(by_disk, bytes);
  by_limits -= std::min(by_limits, bytes);
  if (refused) directory->next_growth_at = options_.clock->NowNanos() + kGrowthPause;
  if (bytes == 0 || !status.ok()) {
    grown_cv_.NotifyAll();
    return false;
  }
  directory->file_bytes = before + bytes;
  directory->table.Grow(static_cast<uint32_t>(bytes / kSlotBytes));
  UpdateCapacityLocked();
  grown_cv_.NotifyAll();
  return true;
}

// Gives back space that was grown ahead of need when the disk has little space left. The capacity is lowered
// first, so that later promises do not count on it.
void SpillStore::Impl::GiveBackLocked(Directory* directory) {
  const uint64_t ahead = AheadOf(*directory);
  const uint64_t spare = SpareLocked() / ActiveLocked();
  const int64_t now = options_.clock->NowNanos();
  const bool surplus = owner_ != nullptr && spare > 2 * ahead + kSlotBytes && IsUsable(*directory);
  if (!surplus || directory->surplus_since == 0) {
    directory->surplus_since = surplus ? now : 0;
    return;
  }
  const bool disk_short = directory->snapshot.growable.by_disk < options_.growth_bytes;
  if (!disk_short || now - directory->surplus_since < kSurplusAge) return;
  const uint64_t free = FreeBytesLocked(*directory);
  const uint64_t most = std::min(spare - ahead, free - std::min(free, ahead));  // or it would soon grow again
  const uint32_t count = static_cast<uint32_t>(
      std::min<uint64_t>(WholeSlots(most) / kSlotBytes, directory->table.slots().free_tail()));
  if (count == 0 || !owner_->LowerCapacity(capacity_.load() - uint64_t{count} * kSlotBytes)) return;
  directory->table.Shrink(count);
  UpdateCapacityLocked();
  const uint64_t after = directory->file_bytes - uint64_t{count} * kSlotBytes;
  directory->growing_since = now;
  mu_.Unlock();
  const absl::Status cut = directory->file->Truncate(after);
  mu_.Lock();
  directory->growing_since = 0;
  if (cut.ok()) {
    directory->file_bytes = after;
    if (directory->share != nullptr) directory->share->Register(after, directory->settings.cap_bytes);
  } else {
    directory->table.Grow(count);
    UpdateCapacityLocked();
  }
}

// ---- The end.

// Returns false when the keeper is stuck in a file system that does not answer.
bool SpillStore::Impl::EndKeeper(Directory* directory, os::SteadyClock::time_point deadline) {
  if (!directory->keeper.joinable()) {  // Open failed before it was started
    directory->file->Close();
    return true;
  }
  bool ended;
  {
    os::MutexLock lock(&mu_);
    while (!directory->keeper_ended && os::SteadyClock::now() < deadline) {
      grown_cv_.WaitFor(&mu_, deadline - os::SteadyClock::now());
    }
    ended = directory->keeper_ended;
  }
  if (ended) {
    directory->keeper.join();
  } else {
    directory->keeper.detach();
  }
  return ended;
}

}  // namespace spillway::io
