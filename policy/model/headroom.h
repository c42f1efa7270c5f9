// Headroom: the bytes that are expected on the GPU at each launch to come, over an iteration that repeats,
// with changes to them. Answers whether bytes may be there from now until they are needed, without taking
// memory that the plan needs for other blocks. By this rule the simulator, PlanCursor and the tests' replay
// bring anything ahead of its use. One thread; nothing fails. Launches are named by their index since the
// start of the job.

#ifndef SPILLWAY_POLICY_MODEL_HEADROOM_H_
#define SPILLWAY_POLICY_MODEL_HEADROOM_H_

#include <optional>
#include <vector>

#include "policy/model/range_max.h"
#include "policy/model/units.h"

namespace spillway::policy {

class Headroom {
 public:
  // Nothing is expected: everything fits.
  Headroom() = default;
  // `expected`: bytes at each position of the iteration, of which launch `start` is position 0; none:
  // everything fits. The GPU is at launch `now`.
  Headroom(std::vector<int64_t> expected, Bytes budget, LaunchIndex start, LaunchIndex now);

  bool known() const { return !expected_.empty(); }
  // The GPU has come to launch `now`: earlier launches are forgotten.
  void MoveTo(LaunchIndex now);
  // Whether `bytes` more fit during every launch of [begin, end); these lie less than two iterations ahead.
  bool Fits(LaunchIndex begin, LaunchIndex end, Bytes bytes) const;
  // There are more bytes during [begin, end) than expected, or fewer.
  void Add(LaunchIndex begin, LaunchIndex end, int64_t bytes);

 private:
  struct Change {
    LaunchIndex begin, end;
    int64_t bytes;
  };
  static constexpr uint32_t kIterations = 3;  // that are looked at: a need lies less than two ahead

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
