// Failures on purpose: the n-th call of a kind, or every n-th (SIMCUDA_FAIL_CREATE and its kin), to show what
// a job does with them. The calls themselves use this, on any thread. fail_points.h has the failures by name
// of the call (SIMCUDA_FAIL).
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_FAILURES_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_FAILURES_H_

namespace simcuda {

// Each counts one call and returns whether it has to fail. Calls are counted only while a setting asks for a
// failure.
bool ShouldFailCreate();
bool ShouldFailSetAccess();
bool ShouldFailCopy();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_FAILURES_H_
