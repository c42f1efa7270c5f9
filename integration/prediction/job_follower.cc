#include "integration/prediction/job_follower.h"

#include <algorithm>
#include <vector>

namespace spillway::integration {

using policy::LaunchIndex;

bool JobFollower::Take(TraceRecorder* recorder) {
  shown_ = trace_.end();
  const bool whole = recorder->Drain(&trace_, kLaunchesAtATime);
  TakeSizesAndMarks(recorder);
  if (whole) return true;
  shown_ = trace_.begin();
  tracker_.Restart();
  return false;
}

void JobFollower::TakeSizesAndMarks(TraceRecorder* recorder) {
  std::vector<policy::BlockEvent> allocations;
  recorder->TakeAllocations(&allocations);
  for (const policy::BlockEvent& event : allocations) {
    sizes_[event.block] = event.bytes;
    latest_copied_[event.block] = event.copied_bytes;
    policy::Bytes& copied = copied_.try_emplace(event.block, event.copied_bytes).first->second;
    copied = std::min(copied, event.copied_bytes);
  }
  const size_t before = marks_.size();
  recorder->TakeMarks(&marks_);
  marks_taken_ += marks_.size() - before;
  if (marks_.size() > before) last_mark_ = marks_.back();
}

bool JobFollower::Follow(absl::FunctionRef<void(LaunchIndex, const policy::LaunchRecord&)> see) {
  const LaunchIndex from = shown_;
  for (; shown_ < trace_.end(); ++shown_) {
    tracker_.Add(trace_, shown_, MarkedBefore(shown_));
    see(shown_, trace_.at(shown_));
  }
  return from < trace_.end();
}

bool JobFollower::MarkedBefore(LaunchIndex index) {
  bool marked = false;
  for (; !marks_.empty() && marks_.front() <= index; marks_.pop_front()) marked = true;
  return marked;
}

void JobFollower::Trim() {
  const LaunchIndex kept = trace_.end() - trace_.begin();
  const LaunchIndex keep = tracker_.wanted();
  if (kept > 2 * keep + kLaunchesAtATime) trace_.DropBefore(trace_.end() - keep);
}

uint32_t JobFollower::IterationLaunches() const {
  return sequence() == policy::kNoSequence ? 0 : static_cast<uint32_t>(iteration().end());
}

uint64_t JobFollower::IterationsDone() const {
  if (sequence() == policy::kNoSequence || trace_.end() < tracker_.start()) return 0;
  return (trace_.end() - tracker_.start()) / iteration().end();
}

}  // namespace spillway::integration
