#include "integration/report/iteration_meter.h"

#include <cmath>
#include <utility>

#include "integration/report/metric_rows.h"

namespace spillway::integration {
namespace {

using allocator::ResidencyStats;

double IterationsBetween(const ResidencyStats& from, const ResidencyStats& to, uint32_t iteration_launches) {
  return static_cast<double>(to.launches - from.launches) / iteration_launches;
}

}  // namespace

void IterationMeter::Sample(double seconds, uint32_t iteration_launches, uint64_t departures,
                            const ResidencyStats& stats, const IterationForecast& forecast) {
  if (iteration_launches != iteration_launches_ || departures != departures_) {
    if (const SteadyIterations past = OfStretch(); past.iterations > longest_.iterations) longest_ = past;
    samples_.clear();
    iteration_launches_ = iteration_launches;
    departures_ = departures;
  }
  if (iteration_launches == 0) return;
  forecast_ = forecast;
  // A job that has stopped launching repeats nothing; one that only pauses is seen by its next launches.
  if (!samples_.empty() && samples_.back().stats.launches == stats.launches) return;
  // The last place has the latest sample. A sample that is too close to the one before it is replaced.
  const size_t count = samples_.size();
  if (count >= 3 && samples_[count - 1].seconds - samples_[count - 2].seconds < kShortestSeconds)
    samples_.pop_back();
  samples_.push_back({seconds, stats});
  if (samples_.size() <= kMaxSamples) return;
  std::vector<At> thinned;
  for (size_t i = 0; i < samples_.size(); ++i) {
    if (i % 2 == 0 || i + 1 == samples_.size()) thinned.push_back(samples_[i]);
  }
  samples_ = std::move(thinned);
}

// Computes the stretch's means. It begins at the sample of the first half that is nearest to a whole number
// of iterations before the last sample, since the launches of an iteration are not spread evenly over its
// time.
SteadyIterations IterationMeter::OfStretch() const {
  SteadyIterations found;
  if (samples_.size() < 2) return found;
  const At& last = samples_.back();
  const double all = IterationsBetween(samples_.front().stats, last.stats, iteration_launches_);
  if (all < kFewestIterations) return found;
  const At* first = nullptr;
  double off = 1;
  for (const At& sample : samples_) {
    const double iterations = IterationsBetween(sample.stats, last.stats, iteration_launches_);
    if (all >= kFewestIterations + 2 && all - iterations < 1)
      continue;  // nothing was prepared for a plan's first iteration
    if (iterations < kFewestIterations || iterations < all / 2) break;
    if (const double here = std::abs(iterations - std::round(iterations)); first == nullptr || here < off) {
      first = &sample;
      off = here;
    }
  }
  if (first == nullptr) first = &samples_.front();
  found.iterations = IterationsBetween(first->stats, last.stats, iteration_launches_);
  found.launches = iteration_launches_;
  found.forecast = forecast_;
  found.iteration_seconds = (last.seconds - first->seconds) / found.iterations;
  for (const FigureRow& row : kFigureRows) {
    if (row.share != RowShare::kPerIteration) continue;
    const auto moved = static_cast<double>(last.stats.*row.member - first->stats.*row.member);
    found.per_iteration.*row.member = static_cast<uint64_t>(std::llround(moved / found.iterations));
  }
  return found;
}

SteadyIterations IterationMeter::Steady() const {
  const SteadyIterations now = OfStretch();
  return now.iterations > 0 ? now : longest_;
}

}  // namespace spillway::integration
