// IterationBoundaries: the points at which the iterations of a job begin. It uses the job's own marks
// (PyTorch's Optimizer.step) once there are any. Before that an anchor stands for the boundary: a launch that
// comes at about equal distances. The anchor with the widest distance is taken, so that it comes once an
// iteration. SequenceTracker gives it each launch. One thread; no call fails.

#ifndef SPILLWAY_POLICY_TRACE_ITERATION_BOUNDARIES_H_
#define SPILLWAY_POLICY_TRACE_ITERATION_BOUNDARIES_H_

#include <array>
#include <cstdint>
#include <unordered_map>

#include "policy/model/units.h"

namespace spillway::policy {

class IterationBoundaries {
 public:
  // `longest`, in launches: launches further apart do not belong to neighboring iterations.
  explicit IterationBoundaries(uint32_t longest) : longest_(longest) {}

  // Adds the next launch, with its index. `marked`: the job marked the end of an iteration just before it.
  // Returns true if an iteration begins with this launch.
  bool Add(LaunchIndex index, uint64_t signature, bool marked);
  // Returns whether the job marks its iterations itself.
  bool marked() const { return marked_; }
  // Records that launches are missing before the next one. It stays known that the job marks its iterations.
  void Restart();

 private:
  // The latest indices of one signature, a ring.
  struct Recent {
    static constexpr uint32_t kKept = 6;
    std::array<LaunchIndex, kKept> at{};
    uint32_t count = 0;
  };
  bool RecordAnchor(LaunchIndex index, uint64_t signature);
  void ForgetOld(LaunchIndex index);

  const uint32_t longest_;
  bool marked_ = false;
  std::unordered_map<uint64_t, Recent> recent_;
  // The anchor: the launch that stands for an iteration's beginning. anchor_gap_ is its greatest recent
  // distance; 0: there is no anchor.
  uint64_t anchor_ = 0;
  LaunchIndex anchor_at_ = 0;
  uint64_t anchor_gap_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_ITERATION_BOUNDARIES_H_
