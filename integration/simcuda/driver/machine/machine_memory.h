// MachineMemory: how much of each device all processes of a made-up machine hold together. Processes are on one
// machine where their SIMCUDA_MACHINE names the same file; without it a process is alone with its devices. The file
// has a place for each process, which the process keeps by a lock: what a process held that has ended, however it
// ended, counts no more. Any thread.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_MACHINE_MEMORY_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_MACHINE_MEMORY_H_

#include <cstdint>
#include <mutex>
#include <string>

namespace simcuda {

// One step at a time over all processes of the machine: who looks at their sum and adds to it.
class MachineStep {
 public:
  MachineStep();
  ~MachineStep();
  MachineStep(const MachineStep&) = delete;
  MachineStep& operator=(const MachineStep&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
};

// Enters the machine, at cuInit. False, with a line on standard error: the file cannot be used, or has no place left.
bool EnterMachine(const std::string& file);
// Whether there may be other processes.
bool SharesMachine();
// The process holds that much of the device now. `number`: the machine's count.
void SetHeldBytes(int number, uint64_t bytes);
// The other processes' sum.
uint64_t BytesOfOthers(int number);
// Tells this machine's devices from those of others: 8 letters.
std::string MachineName();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_MACHINE_MEMORY_H_
