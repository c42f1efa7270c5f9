#include "allocator/residency/state/core.h"

#include <algorithm>

#include "allocator/memory/test_points.h"
#include "io/os/clock.h"

namespace spillway::allocator {
namespace {

// A waiting thread checks again after this time, in case a wake-up was forgotten.
constexpr std::chrono::milliseconds kRecheckInterval{100};
// In ns: longer than the store tries a write, plus the delay after it.
constexpr int64_t kDrivePatience = 10'000'000'000;

}  // namespace

Core::Core(const ResidencyOptions& residency_options, const ResidencyParts& residency_parts)
    : options(residency_options),
      parts(residency_parts),
      chunk_bytes(residency_parts.addresses->chunk_bytes()),
      table(residency_options.device, residency_parts.addresses),
      waits(residency_parts.waits == nullptr ? &own_waits : residency_parts.waits),
      error([this] {
        if (!SPILLWAY_MUTANT(kErrorUnseen)) Stop();
      }),
      clock(residency_parts.driver, residency_parts.context, &error),
      evict(residency_options.evict),
      map_at_once(residency_options.map_at_once),
      standstill(residency_options.soft_evictions && residency_parts.host != nullptr &&
                     residency_parts.host->reachable(),
                 &clock, &stopped, waits) {
  ScaleToCap(options.cap_bytes);
}

void Core::ScaleToCap(uint64_t cap_bytes) {
  const auto budget = static_cast<double>(std::max<uint64_t>(options.budget_bytes, 1));
  const double part = std::min(1.0, static_cast<double>(cap_bytes) / budget);
  const auto scaled = [part](uint64_t bytes) {
    return part < 1 ? static_cast<uint64_t>(part * static_cast<double>(bytes)) : bytes;
  };
  free_reserve_bytes.store(scaled(options.free_reserve_bytes));
  run_ahead_bytes.store(scaled(options.run_ahead_bytes));
}

void Core::Stop() {
  stopped.store(true);
  table.changed.NotifyAll();
}

absl::Status Core::StopStatus() const {
  return error.any() ? error.status(*parts.driver) : absl::CancelledError("Spillway has shut down");
}

absl::Status Core::NotServingStatus() const {
  if (closed.load()) return absl::FailedPreconditionError("Spillway has shut down");
  return error.status(*parts.driver);
}

bool Core::MayDriveComeBack(int64_t now) const {
  return drive_failed_at != 0 && now - drive_failed_at < kDrivePatience;
}

void Core::CountStall(StallCause cause, BlockId lacking, uint64_t tag, int64_t since) {
  const int64_t now = os::Clock::System()->NowNanos();
  const auto waited = static_cast<uint64_t>(now - since);
  const auto lost = static_cast<uint64_t>(clock.LostSince(since, now));
  switch (cause) {
    case StallCause::kChunks:
      counters.stall_chunks_nanos += waited;
      counters.lost_chunks_nanos += lost;
      break;
    case StallCause::kRunAhead:
      counters.throttled_nanos += waited;
      counters.lost_run_ahead_nanos += lost;
      if (lost == 0) return;
      break;
    default: counters.stall_arrival_nanos += waited; counters.lost_arrival_nanos += lost;
  }
  ReportStall({cause, lacking, tag, since, waited, lost});
}

absl::Status Core::AwaitChangeLocked(TableLock* lock, const os::Wait& wait) {
  if (stopped.load()) return StopStatus();
  if (absl::Status status = wait.Check(); !status.ok()) return status;
  if (const std::chrono::nanoseconds left = wait.Left(); left < kRecheckInterval) {
    table.changed.WaitFor(&table.mu, left);
  } else {
    table.changed.WaitRechecking(&table.mu, kRecheckInterval);
  }
  return absl::OkStatus();
}

void AddCounters(const Counters& counters, ResidencyStats* stats) {
#define COUNTER(name, ...) stats->name = counters.name;
#define SECONDS(name, ...) stats->name = counters.name;
#include "allocator/residency/state/counters.def"
  stats->spilled_bytes = stats->host_spilled_bytes + stats->disk_spilled_bytes;
  stats->fetched_bytes = stats->host_fetched_bytes + stats->disk_fetched_bytes;
}

}  // namespace spillway::allocator
