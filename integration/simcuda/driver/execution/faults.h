// The consequences of touching device memory that is not there, and of taking it away under queued work.
// Strict: the process stops with a message. Report: the touch is counted and let in, and the job goes on.
// Fault: the kernel or copy ends there and its context fails, as on a GPU. Off: the handlers that were there
// before decide. Any thread, and the signal handler.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_FAULTS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_FAULTS_H_

#include <setjmp.h>

#include <cstdint>

#include "integration/simcuda/driver/machine/device_rights.h"

namespace simcuda {

class Stream;

// Takes SIGSEGV and SIGBUS; other addresses go to the handlers that were there before.
void InstallFaultHandler();

// One line about a device address: its reservation or allocation, whether it is mapped, what became of it.
// Made without allocating, so that the signal handler can print it.
class AddressText {
 public:
  explicit AddressText(uint64_t address);
  const char* c_str() const { return text_; }

 private:
  char text_[512];
};

// The point where this thread goes on after a fault in mode fault; null outside RunGuarded. Only RunGuarded
// and the signal handler use it.
extern thread_local sigjmp_buf* t_after_fault;

// Fails the stream's context with what the signal handler has just seen.
void FailAfterFault(Stream& stream);

// Runs `touch`, which reads and writes device memory, on a stream's thread, with the rights to that memory.
// Returns false if it ended at an address that is not there (mode fault). Objects on the stack of `touch` are
// left as they are then: no destructor runs.
template <typename Touch>
bool RunGuarded(Stream& stream, const Touch& touch) {
  const DeviceRights rights;  // outside: a thread that the handler has sent here has none
  sigjmp_buf after;
  if (sigsetjmp(after, 0) != 0) {  // the handler blocks no signals, so there is no mask to restore
    t_after_fault = nullptr;
    FailAfterFault(stream);
    return false;
  }
  struct Scope {  // also when a kernel throws
    explicit Scope(sigjmp_buf* after) { t_after_fault = after; }
    ~Scope() { t_after_fault = nullptr; }
  };
  const Scope scope(&after);
  touch();
  return true;
}

// Must be called before memory is taken away by `call` ("cuMemUnmap"). Strict: stops the process if queued or
// running work touches the range; report and fault: counts and reports it.
void CheckNobodyTouches(uint64_t start, uint64_t size, const char* call);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_FAULTS_H_
