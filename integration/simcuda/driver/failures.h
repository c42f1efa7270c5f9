// Failures on purpose: the n-th call of a kind, or every n-th (FAIL_* settings).
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_FAILURES_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_FAILURES_H_

namespace simcuda {

// Each counts one call and says whether it has to fail.
bool ShouldFailCreate();
bool ShouldFailSetAccess();
bool ShouldFailCopy();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_FAILURES_H_
