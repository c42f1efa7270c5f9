// Headroom: the bytes that a plan expects on the GPU at each launch to come, over an iteration that repeats.
// It answers whether bytes may be on the GPU from now until they are needed, without taking memory that the
// plan needs for other blocks. The simulator, PlanCursor and the tests' replay bring bytes in ahead of their
// use by this rule.
//
// The plan's expectation changes as the job runs: a block that is fetched early is there during launches that
// the plan does not count it for, and a block that left outside of the plan is missing from launches that it
// counts. Each such change is added to a range of launches. A need lies less than two iterations ahead, so
// the values of three iterations are kept, in a RangeMax: a question and a change take logarithmic time. When
// the GPU enters the next iteration, the values are built anew from the plan and from the changes that are
// not over.
//
// One thread; nothing fails. Launches are named by their index since the start of the job.

#ifndef SPILLWAY_POLICY_MODEL_HEADROOM_H_
#define SPILLWAY_POLICY_MODEL_HEADROOM_H_

#include <optional>
#include <vector>

#include "policy/model/range_max.h"
#include "policy/model/units.h"

namespace spillway::policy {

class Headroom {
 public:
  // Expects no bytes: everything fits.
  Headroom() = default;
  // `expected`: bytes at each position of the iteration, of which launch `start` is position 0; none:
  // everything fits. The GPU is at launch `now`. Bytes throughout.
  Headroom(std::vector<int64_t> expected, Bytes budget, LaunchIndex start, LaunchIndex now);

  bool known() const { return !expected_.empty(); }
  // Forgets the launches before `now`, at which the GPU is.
  void MoveTo(LaunchIndex now);
  // Returns whether `bytes` more fit during every launch of [begin, end), which lies less than two iterations
  // ahead.
  bool Fits(LaunchIndex begin, LaunchIndex end, Bytes bytes) const;
  // Counts `bytes` more than expected during [begin, end); fewer if `bytes` is negative.
  void Add(LaunchIndex begin, LaunchIndex end, int64_t bytes);

 private:
  struct Change {
    LaunchIndex begin, end;
    int64_t bytes;
  };
  static constexpr uint32_t kIterations = 3;  // kept: a need lies less than two ahead

  void Build();
  void Apply(const Change& change);
  size_t PlaceOf(LaunchIndex index) const;

  std::vector<int64_t> expected_;
  int64_t budget_ = 0;
  LaunchIndex base_ = 0;            // index of the first launch in on_gpu_, which is at position 0
  std::optional<RangeMax> on_gpu_;  // expected bytes with the changes, of kIterations iterations
  std::vector<Change> changes_;     // that are not over
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_HEADROOM_H_
