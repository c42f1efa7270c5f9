// Step marks: tells the engine where PyTorch's optimisers end a step. PyTorch names each Optimizer.step to whoever
// records functions, with or without a profiler; nothing of the job's code is touched. Costs other functions nothing.

#ifndef SPILLWAY_INTEGRATION_TORCH_STEP_MARKS_H_
#define SPILLWAY_INTEGRATION_TORCH_STEP_MARKS_H_

#include "integration/engine/spillway.h"

namespace spillway::integration {

// Once, for the rest of the process. Nothing happens where PyTorch's CPU library is not loaded, or has not the functions
// that are needed: steps are then found by the launches alone. `api` lives as long as the process.
void InstallStepMarks(const spillway_api* api);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_STEP_MARKS_H_
