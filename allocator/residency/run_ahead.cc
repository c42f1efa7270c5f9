// Launches, second part: bounds how far the host may be ahead of the GPU.
#include <algorithm>

#include "allocator/residency/launches.h"
#include "io/os/clock.h"

namespace spillway::allocator {

// This is a function of its own because the fast path of Run has no status. Returns true when the launch has
// its answer.
bool Launches::EndsAtRunAhead(uint64_t bytes, StreamIndex stream, uint64_t tag,
                              absl::FunctionRef<CUresult()> launch, CUresult* answer) {
  const absl::Status status = WaitForRunAhead(bytes, stream, tag);
  if (!status.ok()) *answer = Ended(status, launch);
  return !status.ok();
}

// Waits for a launch of the same stream only. Work on another stream, such as a collective, may itself wait
// for what is launched here next.
TimelineValue Launches::ValueToWaitFor(StreamIndex stream) const {
  const policy::LaunchIndex index = throttle_->MustHaveCompleted(log_->count());
  return index == policy::kNever ? TimelineValue() : log_->LatestOn(stream, index);
}

absl::Status Launches::WaitForRunAhead(uint64_t bytes, StreamIndex stream, uint64_t tag) {
  const uint64_t bound =
      std::max(core_->run_ahead_bytes.load(std::memory_order_relaxed), core_->table.LargestLaunchBytes());
  const TimelineValue before = ValueToWaitFor(stream);
  const auto too_many_bytes = [&] { return core_->clock.UncompletedBytes() + bytes > bound; };
  const auto too_far = [&] { return before.stream != kNoStream && !core_->clock.Completed(before); };
  if (!too_many_bytes() && !too_far()) return absl::OkStatus();
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  const int64_t start = os::Clock::System()->NowNanos();
  core_->clock.Poll();
  absl::Status status;
  if (too_many_bytes() || too_far()) {
    const os::Wait wait(core_->waits, os::WaitKind::kRunAhead, "");
    bool more = true;
    while (status.ok() && more && too_many_bytes())
      status = core_->clock.WaitForOldest(wait, core_->stopped, &more);
    more = true;
    while (status.ok() && more && too_far())
      status = core_->clock.WaitFor(before, wait, core_->stopped, &more);
  }
  core_->CountStall(StallCause::kRunAhead, {}, tag, start);
  return status;
}

}  // namespace spillway::allocator
