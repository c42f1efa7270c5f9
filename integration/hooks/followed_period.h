// FollowedPeriod: the step that a job followed for the most launches, with what happened in it, kept for the end. Owned by
// the reader of the trace; makes no plans. policy::PathTracker cannot give it: that keeps each path as it was when it was
// first seen, which in a job's first steps hands out blocks that later ones do not, and forgets paths that others crowd out.

#ifndef SPILLWAY_INTEGRATION_HOOKS_FOLLOWED_PERIOD_H_
#define SPILLWAY_INTEGRATION_HOOKS_FOLLOWED_PERIOD_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "policy/trace/trace.h"

namespace spillway::integration {

class FollowedPeriod {
 public:
  // The job repeats `period` launches at the end of `trace`; 0: none that is known. To be called as the trace grows.
  void Note(const policy::Trace& trace, uint32_t period);

  struct Step {
    policy::Trace trace;  // one period and no more
    uint32_t period = 0;
    uint64_t launches = 0;  // for which a period of this length was followed
  };
  // Null when nothing repeated.
  const Step* Most() const;

  static constexpr size_t kMostSteps = 4;  // kept: lengths that were followed for longest

 private:
  Step* Of(uint32_t period);
  static bool Repeats(const policy::Trace& trace, uint32_t period);

  std::vector<Step> steps_;
  uint32_t period_ = 0;               // as it was told last
  policy::LaunchIndex noted_to_ = 0;  // end of the trace then
  uint64_t copied_at_ = 0;            // launches of the step in hand when it was copied last
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_FOLLOWED_PERIOD_H_
