// The time that a machine's profile gives to calls (SIMCUDA_HARDWARE). If there is no profile, nothing here
// waits, counts or takes a lock. A call's time passes on its caller's thread. The two locks of a driver are
// time lines: a call that comes while one is held waits until it is free, in order of arrival. It is not
// known in advance how long a load of code holds one: while it lasts, the calls that would need the lock
// wait. There are two forms of a driver: calls that give the GPU work wait for the memory lock, or do not.
// Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_TIME_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_TIME_H_

#include <cstdint>
#include <string>

#include "integration/simcuda/driver/machine/hardware_profile.h"

namespace simcuda {

// Returns the profile in force, or null. A profile that was replaced stays, since a call may still use it.
const HardwareProfile* ActiveProfile();

// Takes over the settings. Returns false, with one line on standard error, if the profile is not understood.
bool ApplyHardware();

// Stands at the top of a driver function. Spend takes the call's time, once its arguments are known to be
// good and before its effect. A call that works meanwhile begins the time by Start and ends it by Finish.
// Counts the processor time of the thread in the call.
class CallTime {
 public:
  explicit CallTime(Call call);
  ~CallTime();
  CallTime(const CallTime&) = delete;
  CallTime& operator=(const CallTime&) = delete;

  void Spend(uint64_t handles = 1, uint64_t bytes = 0) {
    Start(handles, bytes);
    Finish();
  }
  // `empty_bytes`: those of `bytes` for which the call makes pages.
  void Start(uint64_t handles, uint64_t bytes, uint64_t empty_bytes = 0);
  void Finish() const;

 private:
  const HardwareProfile* const profile_;
  const Call call_;
  int64_t cpu_at_start_ns_ = 0;
  int64_t end_ns_ = 0;
  uint32_t shared_ = 0;  // a bit for each load lock that it is to release, by Held
};

// The time of loading code. If there is a profile, it holds the profile's lock, waits until the GPU has
// nothing left to do, and takes the call's time. Otherwise it waits only if SIMCUDA_MODULE_LOAD=wait.
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

// Records that the host took longer than the profile gives: the result is not the profile's.
void CountOverrun(int64_t ns);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_TIME_H_
