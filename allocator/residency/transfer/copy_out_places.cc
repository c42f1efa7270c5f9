// CopyOut, second part: finds places for the bytes off the GPU.
#include <algorithm>
#include <string>
#include <utility>

#include "allocator/memory/test_points.h"
#include "allocator/residency/transfer/copy_out.h"

namespace spillway::allocator {

// Returns false without a failure when there is no place now: other threads are making capacity, and the next
// poll asks again.
bool CopyOut::ReserveHomes(EvictJob* job) {
  SPILLWAY_DELAY_POINT("evictor.before_reserve");
  const size_t extents = job->block->device_chunks();  // reached extents lie in host memory already
  absl::Status slots;
  if (job->tier == policy::PlanTier::kDisk && core_->parts.disk != nullptr) {
    slots = TakeSlots(extents, job);
    if (slots.ok()) return true;
  }
  bool soon = absl::IsUnavailable(slots);
  TakeHostBuffers(extents, job);
  const size_t rest = extents - job->homes.size();
  if (rest == 0) return true;
  // Waiting for the growth of the host tier is cheaper than a transfer to the disk.
  if (core_->parts.host != nullptr && core_->parts.host->storage_growing()) {
    soon = true;
  } else {
    slots = TakeSlots(rest, job);
    if (slots.ok()) return true;
    soon = soon || absl::IsUnavailable(slots);
  }
  if (soon) {
    ReleaseHomes(job);  // another eviction may do with them
    return false;
  }
  // Copies that other devices keep may be in the way. The eviction is tried again soon.
  copies_asked_ = capacity_->AskForCopies();
  job->failure =
      absl::ResourceExhaustedError("nothing more can be moved off the GPU: " + std::string(slots.message()));
  return false;
}

void CopyOut::TakeHostBuffers(size_t count, EvictJob* job) {
  HostPool* const host = core_->parts.host;
  if (host == nullptr) return;
  std::vector<PinnedBuffer> buffers;
  if (host->Take(HostUse::kStorage, count, &buffers) < count && !host->storage_growing()) {
    bool more;
    {
      const TableLock lock(core_->table);
      more = clean_->host_buffers(lock) > 0;
      clean_->ReclaimHost(lock, count - buffers.size());
    }
    if (more) host->Take(HostUse::kStorage, count - buffers.size(), &buffers);
  }
  for (const PinnedBuffer& buffer : buffers) job->homes.push_back(ExtentHome::InHost(buffer));
}

absl::Status CopyOut::TakeSlots(size_t count, EvictJob* job) {
  io::SpillStore* const disk = core_->parts.disk;
  if (disk == nullptr) return absl::ResourceExhaustedError("the host tier is full and there is no disk tier");
  absl::StatusOr<std::vector<io::SlotId>> slots = disk->TakeSlots(count);
  if (!slots.ok() && !absl::IsUnavailable(slots.status())) {
    bool more;
    {
      const TableLock lock(core_->table);
      more = clean_->disk_slots(lock) > 0;
      clean_->ReclaimDisk(lock, count);
    }
    if (more) slots = disk->TakeSlots(count);
  }
  if (!slots.ok()) return slots.status();
  for (const io::SlotId& slot : *slots) job->homes.push_back(ExtentHome::OnDisk(slot));
  return absl::OkStatus();
}

// Gives up this device's clean copies, because another device found no capacity.
bool CopyOut::GiveUpAskedCopies() {
  const uint64_t asked = capacity_->copies_asked();
  if (asked == copies_asked_) return false;
  copies_asked_ = asked;
  const TableLock lock(core_->table);
  clean_->ReclaimAll(lock);
  return true;
}

}  // namespace spillway::allocator
