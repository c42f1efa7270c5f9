// SPILLWAY_TRACE: the job's step as a file for `spillway simulate`, written once, at the end.

#ifndef SPILLWAY_INTEGRATION_ENGINE_STEP_TRACE_H_
#define SPILLWAY_INTEGRATION_ENGINE_STEP_TRACE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "integration/prediction/predictor.h"

namespace spillway::integration {

// A file can be written there: for the start, so that it is not found out after an hour. The message names the file.
absl::Status CheckTraceFile(const std::string& path);

struct DeviceStep {
  int device = 0;
  std::optional<Predictor::Followed> step;
};

// Words of a launch's tag, empty when there are none.
using NameOfLaunch = std::function<std::string(uint64_t tag)>;

// Writes the step of each device that has one: the first one's to `path`, others' to `path` with ".gpuN" after it. Returns
// a line for the user on each device, what was written or why not; one line when there is no device at all.
std::vector<std::string> WriteStepTraces(const std::string& path, std::vector<DeviceStep> steps,
                                         const NameOfLaunch& name);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_STEP_TRACE_H_
