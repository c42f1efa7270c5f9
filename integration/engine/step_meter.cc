#include "integration/engine/step_meter.h"

#include <cmath>
#include <utility>

namespace spillway::integration {
namespace {

using allocator::ResidencyStats;

// Counters that a step has a part of.
constexpr uint64_t ResidencyStats::*kParts[] = {
    &ResidencyStats::spilled_bytes,      &ResidencyStats::host_spilled_bytes,
    &ResidencyStats::disk_spilled_bytes, &ResidencyStats::fetched_bytes,
    &ResidencyStats::host_fetched_bytes, &ResidencyStats::disk_fetched_bytes,
    &ResidencyStats::prefetched_bytes,   &ResidencyStats::prefetch_in_time_bytes,
    &ResidencyStats::in_time_bytes,      &ResidencyStats::lost_room_nanos,
    &ResidencyStats::lost_read_nanos,    &ResidencyStats::lost_run_ahead_nanos,
    &ResidencyStats::stall_room_nanos,   &ResidencyStats::stall_disk_nanos,
    &ResidencyStats::held_back_nanos};

double StepsBetween(const ResidencyStats& from, const ResidencyStats& to, uint32_t period) {
  return static_cast<double>(to.launches - from.launches) / period;
}

}  // namespace

void StepMeter::Look(double seconds, uint32_t period, uint64_t departures, const ResidencyStats& stats,
                     const StepForecast& forecast) {
  if (period != period_ || departures != departures_) {
    if (const SteadySteps past = OfStretch(); past.steps > longest_.steps) longest_ = past;
    looks_.clear();
    period_ = period;
    departures_ = departures;
  }
  if (period == 0) return;
  forecast_ = forecast;
  // The last look is always the latest; it is kept, and a new one begun, when it is far enough from the one before.
  const size_t count = looks_.size();
  if (count >= 3 && looks_[count - 1].seconds - looks_[count - 2].seconds < kShortestSeconds)
    looks_.pop_back();
  looks_.push_back({seconds, stats});
  if (looks_.size() <= kMostLooks) return;
  std::vector<At> thinned;
  for (size_t i = 0; i < looks_.size(); ++i) {
    if (i % 2 == 0 || i + 1 == looks_.size()) thinned.push_back(looks_[i]);
  }
  looks_ = std::move(thinned);
}

// Begins at the look in the first half that is nearest to a whole number of steps before the last one: the launches of
// a step are not spread evenly over its time.
SteadySteps StepMeter::OfStretch() const {
  SteadySteps found;
  if (looks_.size() < 2) return found;
  const At& last = looks_.back();
  const double all = StepsBetween(looks_.front().stats, last.stats, period_);
  if (all < kFewestSteps) return found;
  const At* first = nullptr;
  double off = 1;
  for (const At& look : looks_) {
    const double steps = StepsBetween(look.stats, last.stats, period_);
    if (all >= kFewestSteps + 2 && all - steps < 1) continue;  // a plan's first step finds nothing prepared
    if (steps < kFewestSteps || steps < all / 2) break;
    if (const double here = std::abs(steps - std::round(steps)); first == nullptr || here < off) {
      first = &look;
      off = here;
    }
  }
  if (first == nullptr) first = &looks_.front();
  found.steps = StepsBetween(first->stats, last.stats, period_);
  found.launches = period_;
  found.forecast = forecast_;
  found.step_seconds = (last.seconds - first->seconds) / found.steps;
  for (const auto part : kParts) {
    found.per_step.*part = static_cast<uint64_t>(
        std::llround(static_cast<double>(last.stats.*part - first->stats.*part) / found.steps));
  }
  return found;
}

SteadySteps StepMeter::Steady() const {
  const SteadySteps now = OfStretch();
  return now.steps > 0 ? now : longest_;
}

}  // namespace spillway::integration
