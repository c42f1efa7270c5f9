#include "integration/prediction/followed_sequence.h"

#include <algorithm>
#include <utility>

namespace spillway::integration {

// The last two periods are there and equal, so that what lies in the last is one step and no passage to another.
bool FollowedPeriod::Repeats(const policy::Trace& trace, uint32_t period) {
  if (trace.end() - trace.begin() < 2 * policy::LaunchIndex{period}) return false;
  for (policy::LaunchIndex index = trace.end() - period; index < trace.end(); ++index) {
    if (trace.at(index).signature != trace.at(index - period).signature) return false;
  }
  return true;
}

FollowedPeriod::Step* FollowedPeriod::Of(uint32_t period) {
  const auto found = std::ranges::find(steps_, period, &Step::period);
  if (found != steps_.end()) return &*found;
  if (steps_.size() == kMostSteps) steps_.erase(std::ranges::min_element(steps_, {}, &Step::launches));
  steps_.push_back({{}, period, 0});
  return &steps_.back();
}

void FollowedPeriod::Note(const policy::Trace& trace, uint32_t period) {
  const policy::LaunchIndex before = std::exchange(noted_to_, trace.end());
  if (period == 0 || period != period_) copied_at_ = 0;
  period_ = period;
  if (period == 0) return;
  Step* const step = Of(period);
  step->launches += trace.end() - std::clamp(before, trace.begin(), trace.end());
  // Again now and then: the first steps of a job hand out blocks that later ones do not, and the copies must not cost more
  // than following.
  const bool due = copied_at_ == 0 || step->launches >= 2 * copied_at_;
  if (!due || !Repeats(trace, period)) return;
  step->trace = trace.Slice(trace.end() - period, trace.end());
  copied_at_ = std::max<uint64_t>(step->launches, period);
}

const FollowedPeriod::Step* FollowedPeriod::Most() const {
  const Step* most = nullptr;
  for (const Step& step : steps_) {
    const bool whole = step.trace.end() - step.trace.begin() == step.period;
    if (whole && (most == nullptr || step.launches > most->launches)) most = &step;
  }
  return most;
}

}  // namespace spillway::integration
