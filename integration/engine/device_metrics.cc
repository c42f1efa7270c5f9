#include "integration/engine/device_metrics.h"

#include <cstdint>
#include <optional>

#include "integration/report/observation.h"
#include "integration/settings/setting_limits.h"

namespace spillway::integration {
namespace {

// Only what is known from measured times of launches and, where bytes move, from measured rates.
IterationForecast ForecastOf(const PredictorStats& prediction, const allocator::ResidencyStats& stats) {
  IterationForecast forecast;
  const policy::Forecast& found = prediction.forecast;
  if (prediction.kinds_timed == 0) return forecast;
  const auto seconds = [](policy::Nanos nanos) { return static_cast<double>(nanos) / 1e9; };
  forecast.ideal_seconds = seconds(found.ideal);
  const bool host = stats.host_fetched_bytes > 0, disk = stats.disk_fetched_bytes > 0;
  if ((host && stats.host_in_rate <= 0) || (disk && stats.disk_in_rate <= 0)) return forecast;
  forecast.bound_seconds = seconds(found.bound);
  if (prediction.plans > 0) forecast.plan_seconds = seconds(found.iteration);
  return forecast;
}

ObservedIteration ObservedBy(const Predictor& predictor, const ServedDevice& served, const Settings& settings,
                             const allocator::ResidencyStats& stats) {
  std::optional<uint64_t> budget;
  if (settings.gpu_memory)
    budget =
        Limited(settings.gpu_memory->Of(served.device_bytes), settings.most_gpu_memory, served.device_bytes);
  return ObserveIteration(predictor.observed().get(), stats, budget);
}

}  // namespace

DeviceMetrics MetricsOf(const ServedDevice& served, const Settings& settings) {
  DeviceMetrics metrics;
  metrics.device = served.device;
  metrics.stats = served.residency->Stats();
  if (served.predictor == nullptr) return metrics;
  const PredictorStats prediction = served.predictor->stats();
  metrics.plans = prediction.plans;
  metrics.plan_departures = prediction.departures;
  metrics.plan_iteration_launches = prediction.iteration_launches;
  metrics.plan_readoptions = prediction.readoptions;
  metrics.plan_improvements = prediction.improved;
  metrics.plan_sequences = prediction.sequences;
  metrics.followed_launches = prediction.followed;
  metrics.plan_accesses = prediction.accesses;
  metrics.plan_accesses_known = prediction.accesses_known;
  metrics.iteration_marks = prediction.marks;
  metrics.forecast = ForecastOf(prediction, metrics.stats);
  if (settings.Observes()) metrics.observed = ObservedBy(*served.predictor, served, settings, metrics.stats);
  return metrics;
}

}  // namespace spillway::integration
