// StepBoundaries: where the steps of a job begin. By the job's own marks (PyTorch's Optimizer.step) once there are any;
// without them by a launch that has come at about equal distances, the widest such, so that it is one a step.

#ifndef SPILLWAY_POLICY_TRACE_ITERATION_BOUNDARIES_H_
#define SPILLWAY_POLICY_TRACE_ITERATION_BOUNDARIES_H_

#include <array>
#include <cstdint>
#include <unordered_map>

#include "policy/trace/units.h"

namespace spillway::policy {

class StepBoundaries {
 public:
  // Launches further apart are not of neighbouring steps.
  explicit StepBoundaries(uint32_t longest) : longest_(longest) {}

  // The next launch, with its index. `marked`: the job said that a step ended before it. True when a step begins with
  // this launch.
  bool Add(LaunchIndex index, uint64_t signature, bool marked);
  // The job marks its steps itself.
  bool marked() const { return marked_; }
  // Launches are missing before the next one. What is known of marks stays.
  void Restart();

 private:
  // The latest places of one signature.
  struct Recent {
    static constexpr uint32_t kKept = 6;
    std::array<LaunchIndex, kKept> at{};
    uint32_t count = 0;
  };
  bool NoteAnchor(LaunchIndex index, uint64_t signature);
  void ForgetOld(LaunchIndex index);

  const uint32_t longest_;
  bool marked_ = false;
  std::unordered_map<uint64_t, Recent> recent_;
  // The launch that is taken for the step's beginning; gap 0: none.
  uint64_t anchor_ = 0;
  LaunchIndex anchor_at_ = 0;
  uint64_t anchor_gap_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_ITERATION_BOUNDARIES_H_
