// The loud end of the process, when a job does what no driver would forgive, such as touching memory that is
// not mapped, or using an invalid handle. The caller has written a line about it.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_STOP_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_STOP_H_

namespace simcuda {

// Writes log and statistics, then ends the process by SIGABRT, whatever handler the job has for it. Also for
// a signal handler.
[[noreturn]] void StopLoudly();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_STOP_H_
