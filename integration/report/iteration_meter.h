// IterationMeter: the time, waits and moved bytes of an iteration of the job. It divides the growth of one
// device's counters between two samples by the number of iterations in between. The reporter has one for each
// device, gives it metrics now and then, and holds its own lock around each call, on any thread. No call
// fails; too few iterations give no metrics.

#ifndef SPILLWAY_INTEGRATION_REPORT_ITERATION_METER_H_
#define SPILLWAY_INTEGRATION_REPORT_ITERATION_METER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/residency/residency.h"

namespace spillway::integration {

// The time that an iteration could take; each field is 0 if it is not known.
struct IterationForecast {
  double ideal_seconds = 0;  // all its launches one after another, with everything on the GPU
  double bound_seconds = 0;  // no plan is faster with the memory and the measured rates of this machine
  double plan_seconds = 0;   // expected by the plan in force
};

// Means over a stretch of time in which the job only repeated its iteration.
struct SteadyIterations {
  double iterations = 0;  // in the stretch, not always whole; 0: too few, and the rest is not known
  double iteration_seconds = 0;
  uint32_t launches = 0;       // of an iteration, those with blocks of ours
  IterationForecast forecast;  // at the stretch's last sample
  // An iteration's share of the growth of these counters: traffic by tier, stalls by cause. The others are 0.
  allocator::ResidencyStats per_iteration;
};

class IterationMeter {
 public:
  // Fewer iterations show little, since a sample comes anywhere in an iteration.
  static constexpr double kFewestIterations = 3;
  static constexpr double kShortestSeconds = 1;  // between two samples that are kept
  static constexpr size_t kMaxSamples = 128;     // beyond it every second one is dropped

  // Takes the metrics of this moment. `seconds` never falls. `iteration_launches`: launches of the iteration
  // that repeats now, 0 for none. `departures` grows whenever the job did something else; a new stretch
  // begins then.
  void Sample(double seconds, uint32_t iteration_launches, uint64_t departures,
              const allocator::ResidencyStats& stats, const IterationForecast& forecast = {});

  // Returns the means of the current stretch, or, if that has too few iterations, those of the longest
  // stretch before it.
  SteadyIterations Steady() const;

 private:
  struct At {
    double seconds = 0;
    allocator::ResidencyStats stats;
  };
  SteadyIterations OfStretch() const;

  uint32_t iteration_launches_ = 0;
  uint64_t departures_ = 0;
  IterationForecast forecast_;
  std::vector<At> samples_;   // of the current stretch; its plan may not have worked at full at the first
  SteadyIterations longest_;  // of the stretches before
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_ITERATION_METER_H_
