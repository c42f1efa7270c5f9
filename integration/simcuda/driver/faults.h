// What happens when device memory is touched that is not there, and when it is taken away under queued work.
// Strict: the process stops with a message. Report: counted, let in, the job goes on. Off: the
// handlers that were there before decide.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_FAULTS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_FAULTS_H_

#include <cstdint>

namespace simcuda {

// Takes SIGSEGV and SIGBUS; other addresses go to the handlers that were there before.
void InstallFaultHandler();

// One line about a device address: its reservation or allocation, whether it is mapped, what became of it.
// Made without allocating, so that the signal handler can say it.
class AddressText {
 public:
  explicit AddressText(uint64_t address);
  const char* c_str() const { return text_; }

 private:
  char text_[512];
};

// To be called before memory is taken away by `call` ("cuMemUnmap"). Strict: stops the process when queued or
// running work touches the range; report: counts it and says so.
void CheckNobodyTouches(uint64_t start, uint64_t size, const char* call);

// Writes log and statistics, then ends the process by SIGABRT.
[[noreturn]] void StopLoudly();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_FAULTS_H_
