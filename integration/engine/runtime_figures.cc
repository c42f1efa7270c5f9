// Figures of all devices, as they are reported.

#include <optional>

#include "integration/engine/runtime.h"

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

}  // namespace

Figures Runtime::CollectFigures() const {
  Figures figures;
  for (int device = 0; device < allocator::kMaxDevices; ++device) {
    const auto place = static_cast<size_t>(device);
    allocator::Residency* residency = residencies_[place].load(std::memory_order_acquire);
    if (residency == nullptr) continue;
    DeviceFigures& entry = figures.devices.emplace_back();
    entry.device = device;
    entry.stats = residency->Stats();
    if (predictors_[place] == nullptr) continue;
    const PredictorStats prediction = predictors_[place]->stats();
    entry.plans = prediction.plans;
    entry.plan_departures = prediction.departures;
    entry.plan_iteration_launches = prediction.iteration_launches;
    entry.plan_readoptions = prediction.readoptions;
    entry.plan_improvements = prediction.improved;
    entry.plan_sequences = prediction.sequences;
    entry.followed_launches = prediction.followed;
    entry.iteration_marks = prediction.marks;
    entry.forecast = ForecastOf(prediction, entry.stats);
    if (settings_.Observes()) entry.observed = ObservedAt(place, entry.stats);
  }
  if (disk_ != nullptr) {
    const io::SpillStoreStats stats = disk_->stats();
    figures.disk = {stats.bytes_written, stats.bytes_read};
    figures.disk.capacity_bytes = disk_->capacity_bytes();
  }
  if (host_ != nullptr) figures.host_capacity_bytes = host_->storage_capacity_bytes();
  if (const HookState* const hooks = GetHookState())
    figures.unknown_launches = hooks->unknown_launches.load();
  if (ended_.load()) figures.evictions_ended = ended_by_;
  figures.newer_calls = shim_->newer_calls();
  figures.waits = waits_.Figures();
  figures.waits_now = waits_.Describe();
  return figures;
}

ObservedIteration Runtime::ObservedAt(size_t place, const allocator::ResidencyStats& stats) const {
  std::optional<uint64_t> set;
  if (settings_.gpu_memory)
    set = settings_.gpu_memory->Of(total_bytes_[place].load(std::memory_order_relaxed));
  return ObserveIteration(predictors_[place]->observed().get(), stats, set);
}

Figures Runtime::CurrentFigures() const {
  for (const auto& residency : residencies_) {
    if (residency.load(std::memory_order_acquire) != nullptr) return reporter_->Collect();
  }
  return Figures();
}

}  // namespace spillway::integration
