#include "allocator/residency/state/core.h"

#include "allocator/memory/test_points.h"

namespace spillway::allocator {
namespace {

// A waiting thread looks again after so long, in case that a wake-up was forgotten.
constexpr std::chrono::milliseconds kLookAgain{100};

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
      map_at_once(residency_options.map_at_once) {}

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

absl::Status Core::AwaitChangeLocked(TableLock* lock, const os::Wait& wait) {
  if (stopped.load()) return StopStatus();
  if (absl::Status status = wait.Check(); !status.ok()) return status;
  if (const std::chrono::nanoseconds left = wait.Left(); left < kLookAgain) {
    table.changed.WaitFor(&table.mu, left);
  } else {
    table.changed.WaitRechecking(&table.mu, kLookAgain);
  }
  return absl::OkStatus();
}

}  // namespace spillway::allocator
