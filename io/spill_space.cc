// The space side of the store: slots handed out and taken back, and the thread that grows the files.

#include <algorithm>
#include <map>
#include <utility>

#include "io/os/check.h"
#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/spill_store_impl.h"

namespace spillway::io {
namespace {

constexpr int64_t kGrowthPauseNanos = 1'000'000'000;  // after a growth that the disk refused

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

// Half a step ahead of need: a step takes milliseconds, and nobody should wait for it.
bool SpillStore::Impl::ShortOfSlots(const Directory& directory) const {
  return directory.table.slots().free_count() < options_.growth_bytes / kSlotBytes / 2;
}

uint64_t SpillStore::Impl::FreeSlotsNow() {
  os::MutexLock lock(&mu_);
  return UsableFreeSlots();
}

absl::StatusOr<std::vector<SlotId>> SpillStore::Impl::ReserveSlots(size_t n) {
  // A demand that cannot be met must not fill the disk before it is refused.
  const bool hopeless = FreeSlotsNow() < n && capacity().free_bytes / kSlotBytes < n;
  os::MutexLock lock(&mu_);
  // The very first slots wait until each directory has some, or all of them would go to the first one.
  const auto must_wait = [this, n]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !stopped_ && n > 0 && (UsableFreeSlots() < n || grow_served_ == 0);
  };
  if (!hopeless && must_wait()) {
    const uint64_t request = ++grow_requests_;
    wanted_slots_ += n;
    grow_cv_.NotifyAll();
    while (must_wait() && grow_served_ < request) grown_cv_.Wait(&mu_);
    wanted_slots_ -= n;
  }
  if (stopped_) return absl::CancelledError("the spill store was shut down");
  if (UsableFreeSlots() < n) return NoRoom(n);
  std::vector<SlotId> slots = PickSlotsLocked(n);
  for (const auto& directory : directories_) {
    if (!IsUsable(*directory) || directory->cannot_grow || !ShortOfSlots(*directory)) continue;
    ++grow_requests_;
    grow_cv_.NotifyAll();
    break;
  }
  return slots;
}

void SpillStore::Impl::UpdateRoomLocked() {
  uint64_t slots = 0;
  for (const auto& directory : directories_) {
    const SlotAllocator& table = directory->table.slots();
    if (IsUsable(*directory)) slots += table.size() - table.quarantined_count();
  }
  room_.store(slots * kSlotBytes);
}

absl::Status SpillStore::Impl::GrowTo(uint64_t bytes) {
  if (room_.load() >= bytes) return absl::OkStatus();
  if (bytes - room_.load() > capacity().free_bytes) {  // must not fill the disk before it is refused
    os::MutexLock lock(&mu_);
    return NoRoom((bytes - room_.load() + kSlotBytes - 1) / kSlotBytes);
  }
  std::string paths;
  for (const auto& directory : directories_) paths += (paths.empty() ? "" : ", ") + directory->settings.path;
  const os::Wait wait(waits_, os::WaitKind::kDiskGrowth, paths);
  os::MutexLock lock(&mu_);
  const uint64_t request = ++grow_requests_;
  wanted_room_ = std::max(wanted_room_, bytes);
  grow_cv_.NotifyAll();
  while (!stopped_ && room_.load() < bytes && grow_served_ < request) {
    SPILLWAY_RETURN_IF_ERROR(wait.Check());
    grown_cv_.WaitFor(&mu_, std::chrono::milliseconds(100));
  }
  if (stopped_) return absl::CancelledError("the spill store was shut down");
  if (room_.load() >= bytes) return absl::OkStatus();
  return NoRoom((bytes - room_.load()) / kSlotBytes);
}

absl::StatusOr<std::vector<SlotId>> SpillStore::Impl::TakeSlots(size_t n) {
  os::MutexLock lock(&mu_);
  if (stopped_) return absl::CancelledError("the spill store was shut down");
  if (UsableFreeSlots() >= n) return PickSlotsLocked(n);
  const uint64_t more = room_.load() + (n - UsableFreeSlots()) * kSlotBytes;
  bool may_grow = false;
  for (const auto& directory : directories_) {
    may_grow = may_grow || (IsUsable(*directory) && !directory->cannot_grow);
  }
  if (wanted_room_ < more) {
    wanted_room_ = more;
    ++grow_requests_;
    grow_cv_.NotifyAll();
    may_grow = true;
  }
  if (!may_grow) return NoRoom(n);
  return absl::UnavailableError("spill files are being grown");
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
  return slots;
}

absl::Status SpillStore::Impl::NoRoom(size_t n) {
  std::string text = "no room to spill " + std::to_string(n * kSlotBytes >> 20) + " MiB:";
  for (const auto& directory : directories_) {
    const SlotAllocator& slots = directory->table.slots();
    text += " " + directory->settings.path + " holds " +
            std::to_string(uint64_t{slots.in_use_count()} * kSlotBytes >> 20) + " MiB of a file of " +
            std::to_string(directory->file_bytes >> 20) + " MiB";
    if (IsBad(*directory)) {
      text += " and is out of use after errors;";
    } else if (directory->disk_full) {
      text += " on a full disk;";
    } else {
      text += " that its cap, the disk's reserve or a limit keeps from growing;";
    }
  }
  text.pop_back();
  return absl::ResourceExhaustedError(text);
}

void SpillStore::Impl::ReleaseSlot(SlotId slot) {
  Directory& directory = DirectoryOf(slot);
  os::MutexLock lock(&mu_);
  directory.table.Release(slot.index);
  UpdateRoomLocked();
  if (wanted_slots_ > 0) grown_cv_.NotifyAll();
}

void SpillStore::Impl::GrowLoop() {
  os::MutexLock lock(&mu_);
  while (true) {
    while (!stopped_ && grow_requests_ == grow_served_) grow_cv_.Wait(&mu_);
    if (stopped_) break;
    const uint64_t request = grow_requests_;
    GrowRound();
    grow_served_ = request;
    grown_cv_.NotifyAll();
  }
  grower_ended_ = true;
  grown_cv_.NotifyAll();
}

// First for those who wait, then ahead of need.
void SpillStore::Impl::GrowRound() {
  for (const auto& directory : directories_) directory->cannot_grow = false;
  bool grew = true;
  const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return UsableFreeSlots() < wanted_slots_ || room_.load() < wanted_room_;
  };
  while (grew && !stopped_ && wanted()) {
    grew = false;
    for (const auto& directory : directories_) {
      if (wanted() && GrowOnce(directory.get())) grew = true;
    }
  }
  wanted_room_ = 0;
  for (const auto& directory : directories_) {
    while (!stopped_ && ShortOfSlots(*directory) && GrowOnce(directory.get())) {
    }
  }
}

// Grows one file by one step, or by what there is. The lock is not held while the file system works.
bool SpillStore::Impl::GrowOnce(Directory* directory) {
  if (stopped_ || !IsUsable(*directory) || options_.clock->NowNanos() < directory->next_growth_at) {
    directory->cannot_grow = true;
    return false;
  }
  const uint64_t before = directory->file_bytes;
  mu_.Unlock();
  uint64_t step =
      std::min(options_.growth_bytes, directory->file->RoomToGrow(before, directory->settings.cap_bytes,
                                                                  options_.disk_reserve_bytes)) /
      kSlotBytes * kSlotBytes;
  bool refused = false;
  absl::Status status;
  while (step > 0) {
    status = directory->file->Grow(before + step);
    if (status.ok()) break;
    refused = true;  // a quota, or others were faster: take what there is
    step = step / 2 / kSlotBytes * kSlotBytes;
  }
  if (refused)
    os::Log(os::LogLevel::kInfo, std::string(status.ok() ? "grew by less than a step" : status.message()));
  mu_.Lock();
  if (refused) directory->next_growth_at = options_.clock->NowNanos() + kGrowthPauseNanos;
  directory->cannot_grow = step == 0;
  if (step == 0) return false;
  directory->file_bytes = before + step;
  directory->table.Grow(static_cast<uint32_t>(step / kSlotBytes));
  UpdateRoomLocked();
  grown_cv_.NotifyAll();
  return true;
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
    room.by_files +=
        directory->file->RoomToGrow(file_bytes, directory->settings.cap_bytes, options_.disk_reserve_bytes) /
        kSlotBytes * kSlotBytes;
    room.by_device =
        directory->file->FreeBeyondReserve(options_.disk_reserve_bytes) / kSlotBytes * kSlotBytes;
  }
  for (const auto& [device, room] : devices) capacity.free_bytes += std::min(room.by_files, room.by_device);
  capacity.total_bytes += capacity.free_bytes;
  return capacity;
}

}  // namespace spillway::io
