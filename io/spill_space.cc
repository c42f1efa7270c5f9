// The space side of the store: slots handed out and taken back, and those who wait for room.

#include <algorithm>
#include <map>
#include <utility>

#include "io/os/check.h"
#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/spill_store_impl.h"

namespace spillway::io {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
// How long a caller waits for a disk that has not enough: others may be about to give something back, and what was
// refused is tried again after a second.
constexpr int64_t kPatience = kSecond + kSecond / 2;
// That of the process that began first of those that spill there: the next one is refused meanwhile, and ends. What it
// had comes some seconds later, at the file system's next commit.
constexpr int64_t kPatienceOfFirst = 20 * kSecond;
constexpr int64_t kPatienceAfterOthers = 10 * kSecond;
constexpr int64_t kLongestShortage = 60 * kSecond;
constexpr int64_t kFirstFullPause = kSecond;
constexpr int64_t kLongestFullPause = 30 * kSecond;
constexpr auto kBetweenLooks = std::chrono::milliseconds(50);

std::string Mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

bool SpillStore::Impl::IsBad(const Directory& directory) const {
  return directory.queue->counters().unresponsive.load() ||
         directory.failures >= static_cast<uint64_t>(options_.errors_until_bad);
}

bool SpillStore::Impl::IsUsable(const Directory& directory) const {
  return !directory.disk_full && !IsBad(directory);
}

uint64_t SpillStore::Impl::UsableFreeSlots() const {
  uint64_t free = 0;
  for (const auto& directory : directories_) {
    if (IsUsable(*directory)) free += directory->table.slots().free_count();
  }
  return free;
}

void SpillStore::Impl::UpdateRoomLocked() {
  uint64_t slots = 0;
  for (const auto& directory : directories_) {
    const SlotAllocator& all = directory->table.slots();
    if (IsUsable(*directory)) slots += all.size() - all.quarantined_count();
  }
  const uint64_t before = room_.exchange(slots * kSlotBytes);
  if (room_.load() > before) {
    gained_at_ = options_.clock->NowNanos();
    short_since_ = 0;
  }
}

// A write into allocated space met a full disk. It is looked at again, at growing distances.
void SpillStore::Impl::CloseFullLocked(Directory* directory) {
  if (directory->disk_full) return;
  directory->disk_full = true;
  directory->full_pause =
      directory->full_pause == 0 ? kFirstFullPause : std::min(2 * directory->full_pause, kLongestFullPause);
  directory->full_until = options_.clock->NowNanos() + directory->full_pause;
  os::Log(os::LogLevel::kWarn,
          "path=" + directory->settings.path + " is full and gets no new spill slots until there is space");
  PokeLocked();
}

// ---- Waiting for room.

absl::Status SpillStore::Impl::GrowTo(uint64_t bytes) {
  if (room_.load() >= bytes) return absl::OkStatus();
  const os::Wait wait(waits_, os::WaitKind::kDiskGrowth, Paths());
  os::MutexLock lock(&mu_);
  const auto demand = demands_.insert(demands_.end(), bytes);
  absl::Status status = WaitForRoomLocked(bytes, wait);
  demands_.erase(demand);
  return status;
}

absl::Status SpillStore::Impl::WaitForRoomLocked(uint64_t bytes, const os::Wait& wait) {
  const int64_t start = options_.clock->NowNanos();
  PokeLocked();
  while (room_.load() < bytes) {
    if (stopped_) return absl::CancelledError("the spill store was shut down");
    SPILLWAY_RETURN_IF_ERROR(wait.Check());
    const Hope hope = HopeOfLocked(bytes, start);
    NoteHopeLocked(hope);
    if (hope == Hope::kNever) return NoRoom(bytes);
    if (hope == Hope::kNotNow) NoteOthersLocked();
    if (hope == Hope::kNotNow && options_.clock->NowNanos() >= PatienceEndsLocked(start))
      return NoRoom(bytes);
    grown_cv_.WaitFor(&mu_, kBetweenLooks);
  }
  return absl::OkStatus();
}

void SpillStore::Impl::NoteHopeLocked(Hope hope) {
  if (hope == Hope::kNotNow && short_since_ == 0) short_since_ = options_.clock->NowNanos();
}

void SpillStore::Impl::NoteOthersLocked() {
  for (const auto& directory : directories_) {
    if (!IsUsable(*directory) || !directory->order->FirstOfSeveral()) continue;
    others_until_ = options_.clock->NowNanos();
  }
}

// While space comes back, and a little longer, there is more to come.
int64_t SpillStore::Impl::PatienceEndsLocked(int64_t start) const {
  int64_t end = std::max(short_since_, gained_at_) + kPatience;
  if (others_until_ != 0)
    end = std::max(end, std::min(others_until_ + kPatienceAfterOthers, start + kPatienceOfFirst));
  end = std::max(end, opened_at_ + options_.late_frees.count());
  return std::min(end, start + kLongestShortage);
}

// Whether room can become `bytes`, by what keepers have seen since `since`. What a call under way is about to grow is
// hoped for like what is free.
SpillStore::Impl::Hope SpillStore::Impl::HopeOfLocked(uint64_t bytes, int64_t since) const {
  struct Sums {
    uint64_t by_files = 0;  // of the directories there
    uint64_t by_disk = 0;
  };
  std::map<dev_t, Sums> devices;
  uint64_t by_limits = room_.load();
  uint64_t now = room_.load();
  bool unknown = false;
  for (const auto& directory : directories_) {
    if (!IsUsable(*directory)) continue;
    if (directory->look.at < since) unknown = true;
    if (directory->look.at < 0) continue;
    const SpillFile::Growable& growable = directory->look.growable;
    by_limits += std::min(growable.by_limits / kSlotBytes * kSlotBytes, UINT64_MAX / 4 - by_limits);
    Sums& sums = devices[directory->file->device()];
    sums.by_files += growable.bytes() / kSlotBytes * kSlotBytes;
    sums.by_disk = std::max(sums.by_disk, growable.by_disk / kSlotBytes * kSlotBytes);
    now += directory->growing_bytes;
  }
  for (const auto& [device, sums] : devices) now += std::min(sums.by_files, sums.by_disk);
  if (now >= bytes) return Hope::kYes;
  if (unknown) return Hope::kUnknown;
  return by_limits < bytes ? Hope::kNever : Hope::kNotNow;
}

absl::Status SpillStore::Impl::NoRoom(uint64_t bytes) const {
  std::string text = "no room to spill " + Mebibytes(bytes) + ":";
  for (const auto& directory : directories_) {
    const SlotAllocator& slots = directory->table.slots();
    text += " " + directory->settings.path + " holds " +
            Mebibytes(uint64_t{slots.in_use_count()} * kSlotBytes) + " in a file of " +
            Mebibytes(directory->file_bytes);
    const SpillFile::Growable& growable = directory->look.growable;
    if (IsBad(*directory)) {
      text += " and is out of use after errors;";
    } else if (directory->disk_full) {
      text += " on a full disk;";
    } else if (growable.by_limits < kSlotBytes) {
      text += " that its cap or a limit keeps from growing;";
    } else {
      text += " on a disk with " + Mebibytes(growable.by_disk) + " free beyond the reserve;";
    }
  }
  text.pop_back();
  return absl::ResourceExhaustedError(text);
}

std::string SpillStore::Impl::Paths() const {
  std::string paths;
  for (const auto& directory : directories_) {
    paths += (paths.empty() ? "" : ", ") + directory->queue->place();
  }
  return paths;
}

// ---- Slots.

absl::StatusOr<std::vector<SlotId>> SpillStore::Impl::TakeSlots(size_t n) {
  os::MutexLock lock(&mu_);
  if (stopped_) return absl::CancelledError("the spill store was shut down");
  const uint64_t free = UsableFreeSlots();
  if (free >= n) {
    asked_room_ = 0;
    return PickSlotsLocked(n);
  }
  asked_last_ = options_.clock->NowNanos();
  if (asked_room_ == 0) asked_since_ = asked_last_;
  const uint64_t wanted = room_.load() + (n - free) * kSlotBytes;
  // A larger question from before that has no hope must not stand before this one.
  const Hope before = HopeOfLocked(asked_room_, asked_since_);
  if (asked_room_ < wanted || before == Hope::kNotNow || before == Hope::kNever) {
    asked_room_ = wanted;
    PokeLocked();
  }
  const Hope hope = HopeOfLocked(wanted, asked_since_);
  NoteHopeLocked(hope);
  if (hope == Hope::kYes || hope == Hope::kUnknown)
    return absl::UnavailableError("spill files are being grown");
  return NoRoom(n * kSlotBytes);
}

absl::StatusOr<std::vector<SlotId>> SpillStore::Impl::ReserveSlots(size_t n) {
  while (true) {
    absl::StatusOr<std::vector<SlotId>> slots = TakeSlots(n);
    if (slots.ok() || absl::IsCancelled(slots.status())) return slots;
    uint64_t wanted;
    {
      os::MutexLock lock(&mu_);
      const uint64_t free = UsableFreeSlots();
      if (free >= n) continue;
      wanted = room_.load() + (n - free) * kSlotBytes;
    }
    SPILLWAY_RETURN_IF_ERROR(GrowTo(wanted));
  }
}

std::vector<SlotId> SpillStore::Impl::PickSlotsLocked(size_t n) {
  std::vector<DirectoryLoad> loads;
  for (const auto& directory : directories_) {
    loads.push_back(DirectoryLoad{.queued_bytes = directory->queue->queued_bytes() +
                                                  uint64_t{directory->table.awaiting_write()} * kSlotBytes,
                                  .bytes_per_second = directory->queue->bytes_per_second(),
                                  .free_slots = directory->table.slots().free_count(),
                                  .usable = IsUsable(*directory)});
  }
  std::vector<SlotId> slots;
  slots.reserve(n);
  while (slots.size() < n) {
    const std::optional<size_t> chosen = PickDirectory(loads, kSlotBytes);
    SPILLWAY_CHECK(chosen.has_value());  // the caller counted the free slots under this lock
    const std::optional<uint32_t> index = directories_[*chosen]->table.Allocate();
    SPILLWAY_CHECK(index.has_value());
    slots.push_back(SlotId{static_cast<uint32_t>(*chosen), *index});
    loads[*chosen].queued_bytes += kSlotBytes;
    --loads[*chosen].free_slots;
  }
  if (NeededLocked() > low_room_.load()) PokeLocked();
  return slots;
}

void SpillStore::Impl::ReleaseSlot(SlotId slot) {
  Directory& directory = DirectoryOf(slot);
  os::MutexLock lock(&mu_);
  const uint32_t quarantined = directory.table.slots().quarantined_count();
  directory.table.Release(slot.index);
  if (directory.table.slots().quarantined_count() != quarantined) UpdateRoomLocked();
}

SpillCapacity SpillStore::Impl::capacity() {
  struct Room {
    uint64_t by_files = 0;   // sum over the directories there
    uint64_t by_device = 0;  // what the file system has beyond the reserve
  };
  std::map<dev_t, Room> devices;
  SpillCapacity capacity;
  for (const auto& directory : directories_) {
    uint64_t file_bytes = 0;
    {
      os::MutexLock lock(&mu_);
      if (stopped_) return SpillCapacity{};
      const SlotAllocator& slots = directory->table.slots();
      capacity.total_bytes += uint64_t{slots.in_use_count()} * kSlotBytes;
      if (!IsUsable(*directory)) continue;
      capacity.free_bytes += uint64_t{slots.free_count()} * kSlotBytes;
      file_bytes = directory->file_bytes;
    }
    Room& room = devices[directory->file->device()];
    const SpillFile::Growable growable =
        directory->file->RoomToGrow(file_bytes, directory->settings.cap_bytes, options_.disk_reserve_bytes);
    room.by_files += growable.bytes() / kSlotBytes * kSlotBytes;
    room.by_device = growable.by_disk / kSlotBytes * kSlotBytes;
  }
  for (const auto& [device, room] : devices) capacity.free_bytes += std::min(room.by_files, room.by_device);
  capacity.total_bytes += capacity.free_bytes;
  return capacity;
}

}  // namespace spillway::io
