// The host's rights to device memory. A CPU may not read a GPU's memory, but here it lies in the process.
// With SIMCUDA_PROTECTION_KEYS its pages carry a memory protection key that is closed in every thread: a
// touch ends in SIGSEGV, a system call in EFAULT. The code that stands for the GPU opens the key while it
// works. A thread that is started meanwhile (a kernel's helper) has its starter's rights, for as long as it
// lives.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DEVICE_RIGHTS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DEVICE_RIGHTS_H_

#include <cstdint>

namespace simcuda {

// Takes a key if the settings want one. Returns false, with one line, if they insist on it and there is none.
// Called once, before there is device memory.
bool TakeDeviceKey();

// Returns whether device memory is closed to the host. Thread-safe; also for a signal handler.
bool IsDeviceMemoryClosed();

// The users of pages that are made accessible: the GPU alone, as device memory, or the host as well.
enum class Touch { kDevice, kAnybody };

// Make whole pages readable and writable, or nobody's again, whoever could touch them before. Return false if
// the kernel refused.
bool OpenPages(uint64_t address, uint64_t size, Touch touch);
bool ClosePages(uint64_t address, uint64_t size);

// Lets this thread touch device memory while the object lives. Scopes nest. Does nothing without keys. Also
// for a signal handler, which begins without rights, whatever the thread had.
class DeviceRights {
 public:
  DeviceRights();
  ~DeviceRights();
  DeviceRights(const DeviceRights&) = delete;
  DeviceRights& operator=(const DeviceRights&) = delete;

 private:
  int before_ = 0;  // as pkey_get returns it
};

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DEVICE_RIGHTS_H_
