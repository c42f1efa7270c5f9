// Faulter, third part: compares the bytes that have come back with those that had left (SPILLWAY_VERIFY).
// Both are hashed where they are used, on the GPU, so the comparison covers the link, staging, host memory
// and the disk at once. No launch may have the block before it.
#include <string>
#include <utility>

#include "allocator/memory/test_points.h"
#include "allocator/residency/transfer/faulter.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

constexpr int kMaxArrivals = 2;  // of one fetch: bytes that are wrong twice do not become right
constexpr uint64_t kMaxLines = 8;

}  // namespace

// Leaves out bytes that a kernel may have written on purpose while they were away (soft blocks), and blocks
// that are reached in part.
bool Faulter::ChecksArrival(const FetchJob& job) const {
  const Block& block = *job.block;
  return core_->options.verify_arrivals && !job.still && block.copies.content_known &&
         block.memory.reached.empty() && hash_->Get() != nullptr;
}

// Called when all copies have been enqueued.
bool Faulter::BeginCheck(FetchJob* job) {
  absl::StatusOr<CUevent> mark = copies_->MarkIn();
  if (SPILLWAY_MUTANT(kArrivalUnawaited) && mark.ok()) {
    const TableLock lock(core_->table);
    job->block->fetch.arrival = *mark;
    core_->table.changed.NotifyAll();
  } else if (mark.ok()) {
    job->copied = *mark;
  } else {  // the enqueued work has ended, or the device has an error
    job->failure = mark.status();
  }
  return true;
}

// The hash has a stream of its own, so that copies of other blocks go on. If too many hashes are under way,
// the next poll tries again. If the driver refuses the hash, the block counts as one that left without a
// hash.
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
    if (job->wrong_arrivals > 0 && core_->counters.wrong_arrivals <= kMaxLines) {
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
  if (++job->wrong_arrivals < kMaxArrivals) {
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

// Fetches again from the same homes: nothing there has been given up.
void Faulter::FetchAgain(FetchJob* job) {
  job->next_extent = 0;
  job->failure = copy_in_.EnqueueHostExtents(job);
}

// Called when the device has completed the hash, if one was enqueued.
void Faulter::ForgetHash(FetchJob* job) {
  if (job->arrived.valid()) hash_->Get()->Drop(&job->arrived);
  for (CUevent* const event : {&job->copied, &job->hashed}) {
    if (*event != nullptr) core_->clock.GiveEvent(std::exchange(*event, nullptr));
  }
}

}  // namespace spillway::allocator
