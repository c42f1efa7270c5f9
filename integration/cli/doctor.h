// `spillway doctor`: examines this machine as Spillway would: libraries, driver, devices, host memory,
// directories. A finding has what was found, whether it works, and what to do when it does not. Leaves no
// files behind and starts no engine. One thread; what fails is a finding.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_H_

#include <memory>
#include <string>
#include <vector>

#include "allocator/driver/cuda_driver.h"

namespace spillway::integration {

enum class Verdict { kGood, kLimited, kBad };

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string what;    // "driver"
  std::string found;   // "version 13.0, 1 device"
  std::string advice;  // what to do; empty when nothing
};

// The driver that a job would use, initialised; null, and the problem, where there is none.
std::unique_ptr<const allocator::CudaDriver> OpenDriver(Finding* problem);

struct DoctorOptions {
  std::string library_directory;          // where libspillway.so and the engine lie
  std::vector<std::string> directories;   // to spill to; empty: the default one
  std::string default_candidates_tmpdir;  // the value of TMPDIR
};

// Each check in order. Takes seconds: it writes and reads in each directory.
std::vector<Finding> Examine(const DoctorOptions& options);

// One line for each finding, aligned, with advice below it.
std::string Format(const std::vector<Finding>& findings);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_H_
