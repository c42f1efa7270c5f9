// The time that a machine's profile gives to calls (SIMCUDA_HARDWARE). Without a profile nothing here waits, counts or
// takes a lock. A call's time passes on its caller's thread; the two locks of a driver are time lines: who comes while
// one is held waits until it is free, in the order of coming. How long a load of code holds one is not known before:
// while it lasts, the calls that would need the lock wait. Two forms of a driver: calls that give the GPU work wait for
// the memory lock, or do not. Any thread.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_TIME_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_TIME_H_

#include <cstdint>
#include <string>

#include "integration/simcuda/driver/machine/hardware_profile.h"

namespace simcuda {

// The profile in force, or null. One that was replaced stays: a call may still use it.
const HardwareProfile* ActiveProfile();

// Takes over what the settings say. False, and one line on standard error, when the profile is not understood.
bool ApplyHardware();

// Stands at the top of a driver function; Spend takes the call's time, once its arguments are known to be good and
// before its effect. Counts the processor time of the thread in the call.
class CallTime {
 public:
  explicit CallTime(Call call);
  ~CallTime();
  CallTime(const CallTime&) = delete;
  CallTime& operator=(const CallTime&) = delete;

  void Spend(uint64_t handles = 1, uint64_t bytes = 0);

 private:
  const HardwareProfile* const profile_;
  const Call call_;
  int64_t cpu_at_start_ns_ = 0;
  uint32_t shared_ = 0;  // a bit for each load lock that it is to give back, by Held
};

// Loading code, with a profile: holds what the profile says, waits until the GPU has nothing left to do, and takes the
// call's time. Without one it waits where SIMCUDA_MODULE_LOAD=wait.
class ModuleLoadTime {
 public:
  ModuleLoadTime();
  ~ModuleLoadTime();
  ModuleLoadTime(const ModuleLoadTime&) = delete;
  ModuleLoadTime& operator=(const ModuleLoadTime&) = delete;

  // `wait_for_gpu` returns when everything that was queued has ended.
  void Spend(void (*wait_for_gpu)());

 private:
  const HardwareProfile* const profile_;
};

// The host took longer for something than the profile gives to it: the result is not the profile's.
void CountOverrun(int64_t ns);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_TIME_H_
