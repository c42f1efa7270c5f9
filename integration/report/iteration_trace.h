// SPILLWAY_TRACE: one iteration of the job as a file for `spillway simulate`. The runtime writes it once, at
// the end of the process, when the predictors have stopped; the path is checked when the first block is asked
// for. RunReport encodes an iteration for its file, too. Thread-safe. A failure at the end becomes a line for
// the user.

#ifndef SPILLWAY_INTEGRATION_REPORT_ITERATION_TRACE_H_
#define SPILLWAY_INTEGRATION_REPORT_ITERATION_TRACE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integration/prediction/predictor.h"

namespace spillway::integration {

// The iteration of one device for its file.
struct DeviceIteration {
  int device = 0;
  std::optional<Predictor::Followed> iteration;  // none: nothing repeated
};

// Returns the name of a launch's tag, empty if there is none.
using NameOfLaunch = std::function<std::string(uint64_t tag)>;

// Gives the kernels of the iteration their names (ShortKernelName). Returns the text of its file, whose names
// have no comma and no line end; an error if it could not be read again.
absl::StatusOr<std::string> EncodeIteration(Predictor::Followed* iteration, const NameOfLaunch& name);

// Writes the iteration of each device that has one: the first goes to `path`, each further one to `path` with
// ".gpuN" after it. Returns a line for the user about each device: the file that was written, or the reason
// why none was. One line if there is no device at all.
std::vector<std::string> WriteIterationTraces(const std::string& path, std::vector<DeviceIteration> devices,
                                              const NameOfLaunch& name);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_ITERATION_TRACE_H_
