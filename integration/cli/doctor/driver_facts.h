// The driver that a job would use, and its features. OpenDriver opens and initializes it in this process, for
// `spillway run`, which compares a budget with it, and for the doctor. InspectDriver makes a context on each
// GPU for a moment. A failure is a status, or a problem in the facts. One thread.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_DRIVER_FACTS_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_DRIVER_FACTS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"
#include "integration/cli/doctor/facts.h"

namespace spillway::integration {

struct OpenedDriver {
  std::string path;       // of the library; empty: not known
  bool by_loader = true;  // ld.so finds it by its name, or the caller named it
  std::unique_ptr<const allocator::CudaDriver> entries;
  allocator::CudaDriver::Lookup lookup;  // for functions that the product itself does not call
};

// `path`: of the library; empty: as ld.so finds it, then where a job's preload looks besides. Returns
// kNotFound if there is none, kFailedPrecondition if cuInit fails, kUnimplemented if the driver is too old.
absl::StatusOr<OpenedDriver> OpenDriver(const std::string& path);

struct DriverOptions {
  std::string path;                       // SPILLWAY_CUDA_DRIVER
  std::chrono::nanoseconds link_time{0};  // of each of three measurements of each GPU; 0: none
  uint64_t host_bytes = 0;                // host memory that is available to this process
  // Called at the start (0) and the end (1) of the measurement of a GPU's link; may be null.
  std::function<void(int device, double part)> link_progress;
};
DriverFacts InspectDriver(const DriverOptions& options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_DRIVER_FACTS_H_
