// The store's slots: taking them, giving them back, and waiting for capacity.

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "io/os/check.h"
#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/store/spill_store_impl.h"

namespace spillway::io {
namespace {

using os::kSecond;

// Wait of a caller for a disk that has too little free space. Another process may be about to give space
// back, and a refused growth is tried again after a second.
constexpr int64_t kShortageWait = kSecond + kSecond / 2;
// The same wait for the process that began first of all that spill to the disk. A later process is refused
// meanwhile and ends; its space comes free some seconds later, at the file system's next commit.
constexpr int64_t kShortageWaitOfFirst = 20 * kSecond;
constexpr int64_t kShortageWaitAfterLater = 10 * kSecond;
constexpr int64_t kLongestShortage = 60 * kSecond;
constexpr int64_t kFirstFullPause = kSecond;
constexpr int64_t kLongestFullPause = 30 * kSecond;
constexpr auto kScanInterval = std::chrono::milliseconds(50);

std::string Mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string LimitText(const SpillFile::Growable& growable) {
  switch (growable.limit) {
    case SpillFile::Limit::kCap: return "its cap of " + Mebibytes(growable.limit_bytes);
    case SpillFile::Limit::kFileSize:
      return "the limit of a file's size of " + Mebibytes(growable.limit_bytes) + " (ulimit -f)";
    case SpillFile::Limit::kFileSystem:
    case SpillFile::Limit::kNone: break;
  }
  return "the reserve (SPILLWAY_DISK_RESERVE)";
}

}  // namespace

bool SpillStore::Impl::IsUsable(const Directory& directory) const {
  return !directory.disk_full && !IsClosed(directory);
}

uint64_t SpillStore::Impl::UsableFreeSlots() const {
  uint64_t free = 0;
  for (const auto& directory : directories_) {
    if (IsUsable(*directory)) free += directory->table.slots().free_count();
  }
  return free;
}

void SpillStore::Impl::UpdateCapacityLocked() {
  uint64_t slots = 0;
  for (const auto& directory : directories_) {
    const SlotAllocator& all = directory->table.slots();
    if (IsUsable(*directory)) slots += all.size() - all.quarantined_count() - directory->table.moved_count();
  }
  const uint64_t before = capacity_.exchange(slots * kSlotBytes);
  if (owner_ != nullptr) owner_->SetCapacity(slots * kSlotBytes);
  if (capacity_.load() > before) {
    gained_at_ = options_.clock->NowNanos();
    short_since_ = 0;
  }
}

// Called when a write into allocated space met a full disk. The disk is checked again after longer and longer
// delays.
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

// ---- Waiting for capacity.

absl::Status SpillStore::Impl::GrowTo(uint64_t bytes) {
  if (capacity_.load() >= bytes) return absl::OkStatus();
  os::Wait wait(waits_, os::WaitKind::kDiskGrowth, Paths());
  os::MutexLock lock(&mu_);
  const auto demand = demands_.insert(demands_.end(), bytes);
  absl::Status status = WaitForCapacityLocked(bytes, &wait);
  demands_.erase(demand);
  return status;
}

absl::Status SpillStore::Impl::WaitForCapacityLocked(uint64_t bytes, os::Wait* wait) {
  const int64_t start = options_.clock->NowNanos();
  PokeLocked();
  while (capacity_.load() < bytes) {
    if (stopped_) return absl::CancelledError("the spill store was shut down");
    SPILLWAY_RETURN_IF_ERROR(wait->Check());
    const CanGrow can_grow = CanGrowToLocked(bytes, start);
    RecordShortageLocked(can_grow);
    if (can_grow == CanGrow::kNever && !ProbeForLocked(bytes)) return NoCapacity(bytes);
    if (can_grow == CanGrow::kClosed) wait->SetSubject(ClosedDirectoriesLocked());
    if (can_grow == CanGrow::kNotNow) RecordLaterProcessesLocked();
    if (can_grow == CanGrow::kNotNow && options_.clock->NowNanos() >= WaitEndsLocked(start) &&
        !ProbeForLocked(bytes))
      return NoCapacity(bytes);
    grown_cv_.WaitFor(&mu_, kScanInterval);
  }
  return absl::OkStatus();
}

std::unique_ptr<NodeShare> SpillStore::Impl::ShareOf(const SpillDirectory& directory) {
  struct stat info = {};
  if (directory.shared_as.empty() || directory.cap_bytes == 0) return nullptr;
  if (stat(directory.path.c_str(), &info) != 0) return nullptr;
  return std::make_unique<NodeShare>(
      NodeShare::Options{.directories = {MountRoot(directory.path)},
                         .account = directory.shared_as + " " + std::to_string(info.st_ino),
                         .ranks = directory.sharers,
                         .unit_bytes = kSlotBytes});
}

// One object for each file system, because two objects of one process would take each other for other
// processes.
std::shared_ptr<DiskOrder> SpillStore::Impl::OrderOf(const Directory& directory) const {
  for (const auto& opened : directories_) {
    if (opened->file->device() == directory.file->device()) return opened->order;
  }
  return std::make_shared<DiskOrder>(directory.settings.path);
}

void SpillStore::Impl::RecordShortageLocked(CanGrow can_grow) {
  if (can_grow == CanGrow::kNotNow && short_since_ == 0) short_since_ = options_.clock->NowNanos();
}

void SpillStore::Impl::RecordLaterProcessesLocked() {
  for (const auto& directory : directories_) {
    if (!IsUsable(*directory) || !directory->order->FirstOfSeveral()) continue;
    later_seen_at_ = options_.clock->NowNanos();
  }
}

// The time to give up (clock, ns). More space may follow while space comes free, and a little longer.
int64_t SpillStore::Impl::WaitEndsLocked(int64_t start) const {
  int64_t end = std::max(short_since_, gained_at_) + kShortageWait;
  if (later_seen_at_ != 0)
    end = std::max(end, std::min(later_seen_at_ + kShortageWaitAfterLater, start + kShortageWaitOfFirst));
  end = std::max(end, opened_at_ + options_.late_frees.count());
  return std::min(end, start + kLongestShortage);
}

// Whether the capacity can become `bytes`, by what the keepers have seen since `since`. Bytes that a call
// under way is about to add count like free space.
SpillStore::Impl::CanGrow SpillStore::Impl::CanGrowToLocked(uint64_t bytes, int64_t since) const {
  struct Sums {
    uint64_t by_files = 0;  // growth that its files allow
    uint64_t by_disk = 0;   // free beyond the reserve
  };
  std::map<dev_t, Sums> devices;
  uint64_t by_limits = capacity_.load();
  uint64_t now = capacity_.load();
  uint64_t closed = 0;  // capacity that closed directories add when they open again
  bool unknown = false;
  for (const auto& directory : directories_) {
    if (IsClosed(*directory)) closed += WhenOpenLocked(*directory);
    if (!IsUsable(*directory)) continue;
    if (directory->snapshot.at < since) unknown = true;
    if (directory->snapshot.at < 0) continue;
    const SpillFile::Growable& growable = directory->snapshot.growable;
    by_limits += std::min(growable.by_limits / kSlotBytes * kSlotBytes, UINT64_MAX / 4 - by_limits);
    Sums& sums = devices[directory->file->device()];
    sums.by_files += growable.bytes() / kSlotBytes * kSlotBytes;
    sums.by_disk = std::max(sums.by_disk, growable.by_disk / kSlotBytes * kSlotBytes);
    now += directory->growing_bytes;
  }
  // Files on one file system share its free space, which therefore counts once.
  for (const auto& [device, sums] : devices) now += std::min(sums.by_files, sums.by_disk);
  if (now >= bytes) return CanGrow::kYes;
  if (unknown) return CanGrow::kUnknown;
  if (closed > 0 && now + closed >= bytes) return CanGrow::kClosed;
  return by_limits < bytes ? CanGrow::kNever : CanGrow::kNotNow;
}

absl::Status SpillStore::Impl::NoCapacity(uint64_t bytes) const {
  std::string text = "no capacity to spill " + Mebibytes(bytes) + ":";
  for (const auto& directory : directories_) {
    const SlotAllocator& slots = directory->table.slots();
    text += " " + directory->settings.path + " holds " +
            Mebibytes(uint64_t{slots.in_use_count()} * kSlotBytes) + " in a file of " +
            Mebibytes(directory->file_bytes);
    const SpillFile::Growable& growable = directory->snapshot.growable;
    if (IsClosed(*directory)) {
      text += " and gets no new slots, since it " + WhyClosedLocked(*directory) + ";";
    } else if (directory->disk_full) {
      text += " on a full disk;";
    } else if (growable.by_limits < kSlotBytes) {
      text += " that " + LimitText(growable) + " keeps from growing;";
    } else if (growable.by_limits <= growable.by_disk) {
      text += " that " + LimitText(growable) + " lets grow by " + Mebibytes(growable.by_limits) + " more;";
    } else {
      text += " on a disk with " + Mebibytes(growable.by_disk) +
              " free beyond the reserve (SPILLWAY_DISK_RESERVE);";
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
    asked_capacity_ = 0;
    return PickSlotsLocked(n);
  }
  asked_last_ = options_.clock->NowNanos();
  if (asked_capacity_ == 0) asked_since_ = asked_last_;
  const uint64_t wanted = capacity_.load() + (n - free) * kSlotBytes;
  // An earlier, larger demand that cannot be met must not replace this one.
  const CanGrow before = CanGrowToLocked(asked_capacity_, asked_since_);
  if (asked_capacity_ < wanted || before == CanGrow::kNotNow || before == CanGrow::kNever) {
    asked_capacity_ = wanted;
    PokeLocked();
  }
  const CanGrow can_grow = CanGrowToLocked(wanted, asked_since_);
  RecordShortageLocked(can_grow);
  if (can_grow == CanGrow::kYes || can_grow == CanGrow::kUnknown)
    return absl::UnavailableError("spill files are being grown");
  if (can_grow == CanGrow::kClosed || ProbeForLocked(wanted))
    return absl::UnavailableError(ClosedDirectoriesLocked());
  return NoCapacity(n * kSlotBytes);
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
      wanted = capacity_.load() + (n - free) * kSlotBytes;
    }
    SPILLWAY_RETURN_IF_ERROR(GrowTo(wanted));
  }
}

std::vector<SlotId> SpillStore::Impl::PickSlotsLocked(size_t n) {
  std::vector<DirectoryLoad> loads;
  for (const auto& directory : directories_) {
    const TransferQueue& queue = *directory->queue;
    const uint64_t awaited_bytes = uint64_t{directory->table.awaiting_write()} * kSlotBytes;
    loads.push_back(DirectoryLoad{.queued_write_bytes = queue.queued_bytes(IoOp::kWrite) + awaited_bytes,
                                  .queued_read_bytes = queue.queued_bytes(IoOp::kRead),
                                  .write_bytes_per_second = queue.BytesPerSecond(IoOp::kWrite),
                                  .read_bytes_per_second = queue.BytesPerSecond(IoOp::kRead),
                                  .passed_over_bytes = directory->passed_over_bytes,
                                  .free_slots = directory->table.slots().free_count(),
                                  .usable = IsUsable(*directory)});
  }
  std::vector<SlotId> slots;
  slots.reserve(n);
  while (slots.size() < n) {
    const std::optional<size_t> chosen = PickDirectory(loads, kSlotBytes);
    SPILLWAY_CHECK(chosen.has_value());  // the caller has counted the free slots under this lock
    const std::optional<uint32_t> index = directories_[*chosen]->table.Allocate();
    SPILLWAY_CHECK(index.has_value());
    slots.push_back(SlotId{static_cast<uint32_t>(*chosen), *index});
    loads[*chosen].queued_write_bytes += kSlotBytes;
    for (size_t i = 0; i < loads.size(); ++i) {
      uint64_t& passed_over = directories_[i]->passed_over_bytes;
      passed_over = i == *chosen ? 0 : passed_over + kSlotBytes;
      loads[i].passed_over_bytes = passed_over;
    }
    --loads[*chosen].free_slots;
  }
  if (NeededLocked() > low_watermark_.load()) {
    PokeLocked();
  } else if (directories_.size() > 1) {
    PokeShortLocked();
  }
  return slots;
}

void SpillStore::Impl::ReleaseSlot(SlotId slot) {
  os::MutexLock lock(&mu_);
  for (std::optional<SlotTable::Place> moved_to = SlotTable::Place{slot.directory, slot.index}; moved_to;) {
    const uint32_t index = moved_to->index;
    SlotTable& table = DirectoryOf({moved_to->directory, index}).table;
    const uint32_t unusable = table.slots().quarantined_count() + table.moved_count();
    moved_to = table.MovedTo(index);
    table.Release(index);
    if (table.slots().quarantined_count() + table.moved_count() != unusable) UpdateCapacityLocked();
  }
}

SpillSpace SpillStore::Impl::space() {
  struct Sums {
    uint64_t by_files = 0;   // growth that its files allow
    uint64_t by_device = 0;  // free in the file system beyond the reserve
  };
  std::map<dev_t, Sums> devices;
  SpillSpace space;
  for (const auto& directory : directories_) {
    uint64_t file_bytes = 0;
    uint64_t most_bytes = 0;
    {
      os::MutexLock lock(&mu_);
      if (stopped_) return SpillSpace{};
      const SlotAllocator& slots = directory->table.slots();
      space.total_bytes += uint64_t{slots.in_use_count() - directory->table.moved_count()} * kSlotBytes;
      if (!IsUsable(*directory)) continue;
      space.free_bytes += uint64_t{slots.free_count()} * kSlotBytes;
      file_bytes = directory->file_bytes;
      most_bytes = directory->most_bytes;
    }
    Sums& sums = devices[directory->file->device()];
    const SpillFile::Growable growable = SpaceOf(*directory, file_bytes, most_bytes);
    sums.by_files += growable.bytes() / kSlotBytes * kSlotBytes;
    sums.by_device = growable.by_disk / kSlotBytes * kSlotBytes;
  }
  for (const auto& [device, sums] : devices) space.free_bytes += std::min(sums.by_files, sums.by_device);
  space.total_bytes += space.free_bytes;
  return space;
}

}  // namespace spillway::io
