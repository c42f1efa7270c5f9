// EnterMachine and SetHeldBytes: how much of each device all processes of a made-up machine hold together.
// Processes are on one machine if their SIMCUDA_MACHINE names the same file; without it a process is alone
// with its devices. The file has a place for each process, which the process keeps by a lock: the memory of a
// process that has ended, however it ended, counts no more. Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_MACHINE_MEMORY_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_MACHINE_MEMORY_H_

#include <cstdint>
#include <mutex>
#include <string>

namespace simcuda {

// Serializes all processes of the machine: a process looks at their sum and adds to it under one of these.
class MachineStep {
 public:
  MachineStep();
  ~MachineStep();
  MachineStep(const MachineStep&) = delete;
  MachineStep& operator=(const MachineStep&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
};

// Enters the machine, at cuInit. Returns false, with a line on standard error, if the file cannot be used, or
// has no place left.
bool EnterMachine(const std::string& file);
// Returns whether there may be other processes.
bool SharesMachine();
// Sets how much of the device the process holds now. `number`: the machine's count.
void SetHeldBytes(int number, uint64_t bytes);
// Returns the other processes' sum.
uint64_t BytesOfOthers(int number);
// Returns a name that tells this machine's devices from those of others: 8 letters.
std::string MachineName();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_MACHINE_MEMORY_H_
