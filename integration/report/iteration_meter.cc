#include "integration/report/iteration_meter.h"

#include <cmath>
#include <utility>

#include "integration/report/figure_rows.h"

namespace spillway::integration {
namespace {

using allocator::ResidencyStats;

double IterationsBetween(const ResidencyStats& from, const ResidencyStats& to, uint32_t iteration_launches) {
  return static_cast<double>(to.launches - from.launches) / iteration_launches;
}

}  // namespace

void IterationMeter::Look(double seconds, uint32_t iteration_launches, uint64_t departures,
                          const ResidencyStats& stats, const IterationForecast& forecast) {
  if (iteration_launches != iteration_launches_ || departures != departures_) {
    if (const SteadyIterations past = OfStretch(); past.iterations > longest_.iterations) longest_ = past;
    looks_.clear();
    iteration_launches_ = iteration_launches;
    departures_ = departures;
  }
  if (iteration_launches == 0) return;
  forecast_ = forecast;
  // A job that has stopped launching repeats nothing; one that only pauses is seen by its next launches.
  if (!looks_.empty() && looks_.back().stats.launches == stats.launches) return;
  // The last place has the latest look. A look that is too close to the one before it is replaced.
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

// Computes the stretch's means. It begins at the look of the first half that is nearest to a whole number of
// iterations before the last look, since the launches of an iteration are not spread evenly over its time.
SteadyIterations IterationMeter::OfStretch() const {
  SteadyIterations found;
  if (looks_.size() < 2) return found;
  const At& last = looks_.back();
  const double all = IterationsBetween(looks_.front().stats, last.stats, iteration_launches_);
  if (all < kFewestIterations) return found;
  const At* first = nullptr;
  double off = 1;
  for (const At& look : looks_) {
    const double iterations = IterationsBetween(look.stats, last.stats, iteration_launches_);
    if (all >= kFewestIterations + 2 && all - iterations < 1)
      continue;  // nothing was prepared for a plan's first iteration
    if (iterations < kFewestIterations || iterations < all / 2) break;
    if (const double here = std::abs(iterations - std::round(iterations)); first == nullptr || here < off) {
      first = &look;
      off = here;
    }
  }
  if (first == nullptr) first = &looks_.front();
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
