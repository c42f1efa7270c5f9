// Faulter, third part: what has come back is compared with what had left (SPILLWAY_VERIFY). Both are hashed where
// they are used, on the GPU: the comparison covers the link, staging, host memory and the disk at once. No launch may
// have the block before.
#include <string>
#include <utility>

#include "allocator/memory/test_points.h"
#include "allocator/residency/transfer/faulter.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

constexpr int kMostArrivals = 2;  // of one fetch: what is wrong again does not become right
constexpr uint64_t kMostLines = 8;

}  // namespace

// What a kernel may have written on purpose while it was away is none of this, nor what is reached in parts.
bool Faulter::ChecksArrival(const FetchJob& job) const {
  const Block& block = *job.block;
  return core_->options.verify_arrivals && !job.still && block.copies.content_known &&
         block.memory.reached.empty() && hash_->Get() != nullptr;
}

// All copies have been enqueued.
bool Faulter::BeginCheck(FetchJob* job) {
  absl::StatusOr<CUevent> mark = copies_->MarkIn();
  if (SPILLWAY_MUTANT(kArrivalUnawaited) && mark.ok()) {
    const TableLock lock(core_->table);
    job->block->fetch.arrival = *mark;
    core_->table.changed.NotifyAll();
  } else if (mark.ok()) {
    job->copied = *mark;
  } else {  // what was enqueued has ended, or the device has an error
    job->failure = mark.status();
  }
  return true;
}

// The hash has a stream of its own: copies of other blocks go on meanwhile. Where too many hashes are under way, the
// next poll tries again; where the driver refuses one, the block counts as one that left without a hash.
bool Faulter::BeginArrivedHash(FetchJob* job) {
  if (!copies_->Done(job->copied)) return false;
  copy_in_.ReturnStaging(job);
  if (!job->staged.empty()) return false;
  const Block& block = *job->block;
  const absl::StatusOr<CUevent> ended =
      copies_->BeginHash(hash_->Get(), block.address, core_->BytesOfCopy(block), &job->arrived);
  if (absl::IsUnavailable(ended.status())) return false;
  core_->clock.GiveEvent(std::exchange(job->copied, nullptr));
  ended.ok() ? void(job->hashed = *ended) : Publish(job);
  return true;
}

bool Faulter::CheckArrival(FetchJob* job) {
  if (job->copied != nullptr) return BeginArrivedHash(job);
  if (!copies_->Done(job->hashed)) return false;
  SPILLWAY_DELAY_POINT("faulter.compares");
  const bool same = hash_->Get()->Take(&job->arrived) == job->block->copies.content;
  ForgetHash(job);
  ++core_->counters.verified_fetches;
  if (same || SPILLWAY_MUTANT(kArrivalTrusted)) {
    if (job->wrong_arrivals > 0) {
      os::Log(
          os::LogLevel::kWarn,
          "a block of " + std::to_string(job->block->allocation.requested_bytes) +
              " bytes arrived on the GPU with wrong bytes, and with the right ones when it was copied "
              "again: the link or memory that bytes pass through on their way is at fault (SPILLWAY_VERIFY)");
    }
    Publish(job);
    return true;
  }
  ++core_->counters.wrong_arrivals;
  if (++job->wrong_arrivals < kMostArrivals) {
    FetchAgain(job);
    return true;
  }
  size_t in_host = 0;
  for (const ExtentHome& home : job->block->copies.homes) in_host += home.in_host() ? 1 : 0;
  const size_t extents = job->block->copies.homes.size();
  const std::string where = in_host == extents ? "in host memory"
                            : in_host == 0     ? "on the disk, or on its way there"
                                               : "in host memory, on the disk, or on its way there";
  job->unreadable = absl::DataLossError("What comes back is not what had left, twice: it has changed " +
                                        where + " (SPILLWAY_VERIFY)");
  return true;
}

// From where it lies: nothing of it has been given up.
void Faulter::FetchAgain(FetchJob* job) {
  job->next_extent = 0;
  job->failure = copy_in_.EnqueueHostExtents(job);
}

// The device has completed it, if it was enqueued.
void Faulter::ForgetHash(FetchJob* job) {
  if (job->arrived.valid()) hash_->Get()->Drop(&job->arrived);
  for (CUevent* const event : {&job->copied, &job->hashed}) {
    if (*event != nullptr) core_->clock.GiveEvent(std::exchange(*event, nullptr));
  }
}

}  // namespace spillway::allocator
