// Iteration marks report to the engine that one of PyTorch's optimizers has ended an iteration. PyTorch names
// each Optimizer.step to every recorder of functions, with or without a profiler. The job's code is not
// touched, and other functions cost nothing more. install.cc calls this once; a mark comes on the thread that
// ran the optimizer. If PyTorch lacks the functions, there are no marks.

#ifndef SPILLWAY_INTEGRATION_TORCH_ITERATION_MARKS_H_
#define SPILLWAY_INTEGRATION_TORCH_ITERATION_MARKS_H_

#include "integration/engine/spillway.h"

namespace spillway::integration {

// Installs the marks, once, for the rest of the process. Does nothing if PyTorch's CPU library is not loaded
// or lacks the functions: iterations are found by the launches alone then. `api` lives as long as the
// process.
void InstallIterationMarks(const spillway_api* api);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_ITERATION_MARKS_H_
