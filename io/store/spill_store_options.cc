#include "io/store/spill_store_options.h"

namespace spillway::io {

absl::Status CheckOptions(const SpillStoreOptions& options) {
  if (options.directories.empty()) return absl::InvalidArgumentError("no spill directory was given");
  if (options.request_bytes == 0 || options.request_bytes % kPageBytes != 0 ||
      options.request_bytes > kSlotBytes) {
    return absl::InvalidArgumentError("request_bytes is " + std::to_string(options.request_bytes) +
                                      "; expected: a multiple of 4096 up to " + std::to_string(kSlotBytes));
  }
  if (options.requests_in_flight < 1 || options.requests_in_flight > 1024) {
    return absl::InvalidArgumentError("requests_in_flight is " + std::to_string(options.requests_in_flight) +
                                      "; expected: 1 to 1024");
  }
  if (options.growth_bytes < kSlotBytes) {
    return absl::InvalidArgumentError("growth_bytes is " + std::to_string(options.growth_bytes) +
                                      "; expected: " + std::to_string(kSlotBytes) + " or more");
  }
  if (options.request_timeout <= std::chrono::nanoseconds::zero()) {
    return absl::InvalidArgumentError("request_timeout must be positive");
  }
  if (options.shutdown_timeout <= std::chrono::nanoseconds::zero()) {
    return absl::InvalidArgumentError("shutdown_timeout must be positive");
  }
  for (const DriveFault& fault : options.faults) {
    if (fault.directory.value_or(0) < options.directories.size()) continue;
    return absl::InvalidArgumentError("a fault of io_faults is for directory " +
                                      std::to_string(*fault.directory) + "; there are " +
                                      std::to_string(options.directories.size()) + ", counted from 0");
  }
  return absl::OkStatus();
}

}  // namespace spillway::io
