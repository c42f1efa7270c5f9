// The loud end of the process: when a job does what no driver would forgive.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_STOP_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_STOP_H_

namespace simcuda {

// Writes log and statistics, then ends the process by SIGABRT. Also from a signal handler.
[[noreturn]] void StopLoudly();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_STOP_H_
