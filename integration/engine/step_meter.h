// StepMeter: what a step that repeats takes, waits and moves, out of figures that are looked at now and then. It owns the
// looks of one device since its steps began to repeat as they do now; when to look is the caller's.

#ifndef SPILLWAY_INTEGRATION_ENGINE_STEP_METER_H_
#define SPILLWAY_INTEGRATION_ENGINE_STEP_METER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/residency/residency.h"

namespace spillway::integration {

// What a step that repeats could take; each 0 where it is not known.
struct StepForecast {
  double ideal_seconds = 0;  // all its launches one after another, with everything on the GPU
  double bound_seconds = 0;  // no plan is faster with the memory and the measured rates of this machine
  double plan_seconds = 0;   // as the plan in force promises
};

// Means over the steps of a stretch in which nothing but the repeated step was seen.
struct SteadySteps {
  double steps = 0;  // in the stretch, need not be whole; 0: too few, the rest is not known
  double step_seconds = 0;
  uint32_t launches = 0;  // of ours in a step
  StepForecast forecast;  // as of the stretch's last look
  // A step's part of what these counters grew by: traffic by tier, stalls by cause.
  allocator::ResidencyStats per_step;
};

class StepMeter {
 public:
  // Fewer steps say little, since a look falls anywhere in a step.
  static constexpr double kFewestSteps = 3;
  static constexpr double kShortestSeconds = 1;  // between two looks that are kept
  static constexpr size_t kMostLooks = 128;      // kept; more thin out, the first and the last stay

  // Figures at `seconds` (rising). `period`: launches in the step that repeats now, 0 for none; `departures` grows
  // whenever the job did something else.
  void Look(double seconds, uint32_t period, uint64_t departures, const allocator::ResidencyStats& stats,
            const StepForecast& forecast = {});

  // Of the stretch that is under way; else of the longest one before, if that had enough steps.
  SteadySteps Steady() const;

 private:
  struct At {
    double seconds = 0;
    allocator::ResidencyStats stats;
  };
  SteadySteps OfStretch() const;

  uint32_t period_ = 0;
  uint64_t departures_ = 0;
  StepForecast forecast_;
  std::vector<At> looks_;  // of the stretch under way; the first may lie before its plan worked at full
  SteadySteps longest_;    // of the stretches before
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_STEP_METER_H_
