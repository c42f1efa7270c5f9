// Faulter, second part: fetches blocks from host memory that their addresses map.
#include <utility>

#include "allocator/memory/test_points.h"
#include "allocator/residency/transfer/faulter.h"
#include "allocator/residency/transfer/mapping.h"
#include "io/os/log.h"

namespace spillway::allocator {

// Takes the mapping of the block's homes away, and maps its chunks. No kernel runs meanwhile.
bool Faulter::Exchange(FetchJob* job) {
  Block* const block = job->block;
  const bool ready = core_->standstill.Join(&job->still);
  {
    const TableLock lock(core_->table);
    if (job->cancelled) {
      ++core_->counters.prefetches_cancelled;
      GiveUpLocked(lock, job);
      return true;
    }
    if (!ready) return false;
  }
  SPILLWAY_DELAY_POINT("faulter.exchanges");
  if (!UnmapBlock(core_, *block).ok()) return true;  // the device's error from now on
  {
    const TableLock lock(core_->table);
    block->memory.soft = false;
  }
  bool mapped = false;
  const absl::Status status = BringIn(job, &mapped);
  if (SPILLWAY_MUTANT(kStandstillEndsEarly)) core_->standstill.Leave(&job->still);
  if (status.ok() || mapped) return true;
  const TableLock lock(core_->table);
  block->fetch.failure = status;
  GiveUpLocked(lock, job);
  return true;
}

// A kernel may have written the block while it was away. The hash of the bytes that had left then differs
// from that of the bytes that are there.
void Faulter::EnqueueHash(FetchJob* job) {
  const Block& block = *job->block;
  DeviceHash* const hash = hash_->Get();
  if (hash == nullptr || !block.copies.content_known || !block.memory.reached.empty()) return;
  absl::StatusOr<DeviceHash::Request> request =
      hash->Enqueue(copies_->in(), block.address, core_->BytesOfCopy(block));
  if (request.ok()) job->arrived = *request;
}

void Faulter::CompareLocked(const TableLock& lock, FetchJob* job) {
  lock.Covers(core_->table);
  Block* const block = job->block;
  const bool hashed = job->arrived.valid();
  if (hashed && (hash_->Get()->Take(&job->arrived) == block->copies.content || SPILLWAY_MUTANT(kSoftTrusted)))
    return;
  block->copies.content_known = false;
  if (hashed && core_->counters.soft_writes++ == 0) {
    os::Log(os::LogLevel::kWarn, "a kernel wrote a block of " +
                                     std::to_string(block->allocation.requested_bytes) +
                                     " bytes in host memory that no launch had named: its bytes count. "
                                     "SPILLWAY_AUDIT=1 finds such kernels");
  }
}

}  // namespace spillway::allocator
