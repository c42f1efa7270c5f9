// What happens when device memory is touched that is not there, and when it is taken away under queued work.
// Strict: the process stops with a message. Report: counted, let in, the job goes on. Off: the
// handlers that were there before decide.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_FAULTS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_FAULTS_H_

#include <cstdint>
#include <string>

namespace simcuda {

// Takes SIGSEGV and SIGBUS; other addresses go to the handlers that were there before.
void InstallFaultHandler();

// One line about a device address: its reservation or allocation, whether it is mapped, what became of it.
std::string DescribeAddress(uint64_t address);

// To be called before memory is taken away by `call` ("cuMemUnmap"). Strict: stops the process when queued or
// running work touches the range; report: counts it and says so.
void CheckNobodyTouches(uint64_t start, uint64_t size, const char* call);

// Writes log and statistics, then ends the process by SIGABRT.
[[noreturn]] void StopLoudly();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_FAULTS_H_
