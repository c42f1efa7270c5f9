// The keepers of the store: one thread per directory that asks its file system what is free, grows the file, and gives
// back what was grown ahead and is not needed when the disk runs short. A disk that does not answer holds up its own
// keeper and nobody else. The store's lock is never held while a file system works.

#include <algorithm>
#include <memory>
#include <utility>

#include "io/os/log.h"
#include "io/os/thread.h"
#include "io/spill_store_impl.h"

namespace spillway::io {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kGrowthPause = kSecond;           // after a growth that was refused
constexpr int64_t kLookWhileWanted = kSecond / 10;  // somebody waits for room
constexpr int64_t kLookWhileAsked = kSecond / 4;    // an eviction would need some
constexpr int64_t kLookForSurplus = 5 * kSecond;    // where something could be given back
constexpr int64_t kLookAtSurplus = kSecond;
constexpr int64_t kSurplusAge = 2 * kSecond;  // what a caller of GrowTo got, it is given time to promise
constexpr int64_t kForgetAsked = 5 * kSecond;
constexpr int64_t kStuck = kSecond;  // a call that takes longer is not counted upon
constexpr int64_t kNever = 3600 * kSecond;
constexpr uint64_t kAheadPart = 16;  // of what is free: the last of a disk is not taken ahead of need
constexpr uint64_t kStepByWriting = 32u << 20;

uint64_t WholeSlots(uint64_t bytes) { return bytes / kSlotBytes * kSlotBytes; }
uint64_t SlotsUp(uint64_t bytes) { return (bytes + kSlotBytes - 1) / kSlotBytes * kSlotBytes; }

}  // namespace

// ---- What is wanted.

void SpillStore::Impl::SetPromised(std::function<uint64_t()> promised) {
  os::MutexLock lock(&mu_);
  promised_ = std::move(promised);
}

void SpillStore::Impl::PokeKeepers() {
  os::MutexLock lock(&mu_);
  PokeLocked();
}

void SpillStore::Impl::PokeLocked() {
  for (const auto& directory : directories_) directory->poked = true;
  keep_cv_.NotifyAll();
}

// Room that somebody waits for.
uint64_t SpillStore::Impl::WantedLocked() const {
  uint64_t wanted = asked_room_;
  for (const uint64_t demand : demands_) wanted = std::max(wanted, demand);
  return wanted;
}

// Of that, the most that all together can give; 0: nothing that is missing can be given.
uint64_t SpillStore::Impl::FeasibleLocked() const {
  uint64_t feasible = 0;
  const auto look_at = [this, &feasible](uint64_t wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (wanted > std::max(feasible, room_.load()) && HopeOfLocked(wanted, 0) == Hope::kYes) feasible = wanted;
  };
  look_at(asked_room_);
  for (const uint64_t demand : demands_) look_at(demand);
  return feasible;
}

// Room that must stay.
uint64_t SpillStore::Impl::NeededLocked() const {
  if (promised_ != nullptr) return promised_();
  uint64_t in_use = 0;
  for (const auto& directory : directories_) {
    if (IsUsable(*directory)) in_use += uint64_t{directory->table.slots().in_use_count()} * kSlotBytes;
  }
  return in_use;
}

uint64_t SpillStore::Impl::SpareLocked() const {
  const uint64_t room = room_.load();
  const uint64_t needed = std::max(NeededLocked(), WantedLocked());
  return room > needed ? room - needed : 0;
}

// A step takes milliseconds, and nobody should wait for it.
uint64_t SpillStore::Impl::AheadOf(const Directory& directory) const {
  return WholeSlots(std::min(options_.growth_bytes / 2, directory.look.growable.by_disk / kAheadPart));
}

bool SpillStore::Impl::StuckLocked(const Directory& directory) const {
  return directory.growing_since != 0 && options_.clock->NowNanos() - directory.growing_since > kStuck;
}

// Directories that may grow, as far as is known.
size_t SpillStore::Impl::ActiveLocked() const {
  size_t active = 0;
  for (const auto& directory : directories_) {
    const bool known_full = directory->look.at >= 0 && directory->look.growable.bytes() < kSlotBytes;
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
  while (!close_files_) keep_cv_.Wait(&mu_);
  const bool in_use = directory->in_use;
  mu_.Unlock();
  if (!in_use) directory->file->Close();  // on a disk that does not answer, this does not return either
  directory->order->Close();
  mu_.Lock();
  directory->keeper_ended = true;
  grown_cv_.NotifyAll();
  mu_.Unlock();
}

// Does what there is to do; returns when to look again without being poked (clock, ns).
int64_t SpillStore::Impl::TurnLocked(Directory* directory) {
  const int64_t now = options_.clock->NowNanos();
  if (asked_room_ != 0 && now - asked_last_ > kForgetAsked) asked_room_ = 0;
  if (IsBad(*directory)) return now + kNever;
  if (WantedLocked() == 0 && NeededLocked() == 0 && directory->file_bytes == 0) return now + kNever;
  LookLocked(directory);
  if (directory->disk_full && !ReopenLocked(directory)) return directory->full_until;
  while (!stopped_) {
    const uint64_t step = StepLocked(*directory);
    if (step == 0 || !GrowLocked(directory, step)) break;
  }
  if (!stopped_) GiveBackLocked(directory);
  const uint64_t ahead = AheadOf(*directory) / 2;
  low_room_.store(room_.load() - std::min(room_.load(), ahead), std::memory_order_relaxed);
  return NextTurnLocked(*directory);
}

int64_t SpillStore::Impl::NextTurnLocked(const Directory& directory) const {
  const int64_t now = options_.clock->NowNanos();
  if (room_.load() < WantedLocked()) return now + (demands_.empty() ? kLookWhileAsked : kLookWhileWanted);
  if (SpareLocked() / ActiveLocked() < AheadOf(directory) / 2) return now + kGrowthPause;
  if (directory.surplus_since != 0) return now + kLookAtSurplus;
  return now + (promised_ != nullptr ? kLookForSurplus : kNever);
}

void SpillStore::Impl::LookLocked(Directory* directory) {
  Look look;
  look.at = options_.clock->NowNanos();
  directory->growing_since = look.at;
  const uint64_t size = directory->file_bytes;
  // Somebody who waits in GrowTo has said so.
  const bool said = !demands_.empty() || WantedLocked() <= room_.load();
  mu_.Unlock();
  {
    std::unique_ptr<os::Wait> wait;
    if (!said)
      wait = std::make_unique<os::Wait>(waits_, os::WaitKind::kDiskGrowth, directory->queue->place());
    look.growable =
        directory->file->RoomToGrow(size, directory->settings.cap_bytes, options_.disk_reserve_bytes);
  }
  mu_.Lock();
  directory->growing_since = 0;
  look.free = look.growable.by_disk;
  if (directory->look.at >= 0 && look.free >= directory->look.free + kSlotBytes) gained_at_ = look.at;
  // What was refused lately is not there, whatever the file system says.
  if (look.at < directory->next_growth_at) look.growable.by_disk = 0;
  directory->look = look;
  grown_cv_.NotifyAll();
}

// True when the directory is in use again.
bool SpillStore::Impl::ReopenLocked(Directory* directory) {
  const int64_t now = options_.clock->NowNanos();
  if (now < directory->full_until) return false;
  if (directory->look.growable.by_disk < kSlotBytes) {
    directory->full_until = now + directory->full_pause;
    return false;
  }
  directory->disk_full = false;
  os::Log(os::LogLevel::kWarn, "path=" + directory->settings.path + " has space again");
  UpdateRoomLocked();
  grown_cv_.NotifyAll();
  return true;
}

// ---- Growing.

uint64_t SpillStore::Impl::StepLocked(const Directory& directory) const {
  if (!IsUsable(directory) || options_.clock->NowNanos() < directory.next_growth_at) return 0;
  const uint64_t most =
      std::min(directory.file->grows_by_writing() ? kStepByWriting : SlotsUp(options_.growth_bytes),
               WholeSlots(directory.look.growable.bytes()));
  if (room_.load() < WantedLocked()) return std::min(most, StepForNeedLocked(directory));
  return std::min(most, StepAheadLocked(directory));
}

// Up to an equal share of what is wanted, and what the others cannot give. Nothing while all together cannot: a demand
// that cannot be met must not fill the disk before it is refused.
uint64_t SpillStore::Impl::StepForNeedLocked(const Directory& directory) const {
  const uint64_t wanted = FeasibleLocked();
  if (wanted == 0) return 0;
  const uint64_t share = SlotsUp(wanted / ActiveLocked());
  const auto up_to_share = [share](const Directory& one) { return share - std::min(share, one.file_bytes); };
  uint64_t missing = wanted - room_.load();
  uint64_t by_others = 0;
  for (const auto& other : directories_) {
    if (other.get() == &directory || !IsUsable(*other) || StuckLocked(*other)) continue;
    missing -= std::min(missing, other->growing_bytes);
    uint64_t gives = up_to_share(*other);
    if (other->look.at >= 0) gives = std::min(gives, WholeSlots(other->look.growable.bytes()));
    by_others += gives - std::min(gives, other->growing_bytes);
  }
  const uint64_t left_over = missing - std::min(missing, by_others);
  return SlotsUp(std::max(left_over, std::min(missing, up_to_share(directory))));
}

uint64_t SpillStore::Impl::StepAheadLocked(const Directory& directory) const {
  if (NeededLocked() == 0) return 0;
  const uint64_t ahead = AheadOf(directory);
  const uint64_t spare = SpareLocked() / ActiveLocked();
  return spare < ahead / 2 ? WholeSlots(ahead - spare) : 0;
}

// Grows the file by one step, or by what there is; false when nothing was to be had.
bool SpillStore::Impl::GrowLocked(Directory* directory, uint64_t step) {
  const uint64_t before = directory->file_bytes;
  directory->growing_bytes = step;
  directory->growing_since = options_.clock->NowNanos();
  const bool said = !demands_.empty() || WantedLocked() <= room_.load();
  mu_.Unlock();
  bool refused = false;
  absl::Status status;
  {
    std::unique_ptr<os::Wait> wait;
    if (!said)
      wait = std::make_unique<os::Wait>(waits_, os::WaitKind::kDiskGrowth, directory->queue->place());
    while (step > 0) {
      status = directory->file->Grow(before + step, &ending_);
      if (status.ok() || ending_.load()) break;
      refused = true;  // a quota, or others were faster: take what there is
      step = WholeSlots(step / 2);
    }
  }
  if (refused)
    os::Log(os::LogLevel::kInfo, std::string(status.ok() ? "grew by less than a step" : status.message()));
  mu_.Lock();
  directory->growing_bytes = 0;
  directory->growing_since = 0;
  uint64_t& by_disk = directory->look.growable.by_disk;
  uint64_t& by_limits = directory->look.growable.by_limits;
  by_disk = refused ? 0 : by_disk - std::min(by_disk, step);
  by_limits -= std::min(by_limits, step);
  if (refused) directory->next_growth_at = options_.clock->NowNanos() + kGrowthPause;
  if (step == 0 || !status.ok()) {
    grown_cv_.NotifyAll();
    return false;
  }
  directory->file_bytes = before + step;
  directory->table.Grow(static_cast<uint32_t>(step / kSlotBytes));
  UpdateRoomLocked();
  grown_cv_.NotifyAll();
  return true;
}

// Ahead of need is only what the disk can spare. The room falls first; should a promise have been made meanwhile, it is
// raised again and nothing is cut.
void SpillStore::Impl::GiveBackLocked(Directory* directory) {
  const uint64_t ahead = AheadOf(*directory);
  const uint64_t spare = SpareLocked() / ActiveLocked();
  const int64_t now = options_.clock->NowNanos();
  const bool surplus = promised_ != nullptr && spare > 2 * ahead + kSlotBytes && IsUsable(*directory);
  if (!surplus || directory->surplus_since == 0) {
    directory->surplus_since = surplus ? now : 0;
    return;
  }
  const bool disk_short = directory->look.growable.by_disk < options_.growth_bytes;
  if (!disk_short || now - directory->surplus_since < kSurplusAge) return;
  const uint32_t count = static_cast<uint32_t>(
      std::min<uint64_t>(WholeSlots(spare - ahead) / kSlotBytes, directory->table.slots().free_tail()));
  if (count == 0) return;
  directory->table.Shrink(count);
  UpdateRoomLocked();
  if (std::max(NeededLocked(), WantedLocked()) > room_.load()) {
    directory->table.Grow(count);
    UpdateRoomLocked();
    return;
  }
  const uint64_t after = directory->file_bytes - uint64_t{count} * kSlotBytes;
  directory->growing_since = now;
  mu_.Unlock();
  const absl::Status cut = directory->file->Truncate(after);
  mu_.Lock();
  directory->growing_since = 0;
  if (cut.ok()) {
    directory->file_bytes = after;
  } else {
    directory->table.Grow(count);
    UpdateRoomLocked();
  }
}

// ---- The end.

// False when it is stuck in a file system that does not answer.
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
