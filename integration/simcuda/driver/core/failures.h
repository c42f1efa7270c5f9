// Failures on purpose: the n-th call of a kind, or every n-th (SIMCUDA_FAIL_CREATE and its kin), so that a
// job shows what it does with them. Called by the calls themselves, on any thread. fail_points.h has the
// failures by name of the call (SIMCUDA_FAIL).
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_FAILURES_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_FAILURES_H_

namespace simcuda {

// Each counts one call and says whether it has to fail. Nothing is counted while no setting asks for a
// failure.
bool ShouldFailCreate();
bool ShouldFailSetAccess();
bool ShouldFailCopy();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_FAILURES_H_
