// The host's rights to device memory. A GPU's memory is nothing that a CPU may read; here it lies in the process. With
// SIMCUDA_PROTECTION_KEYS its pages carry a memory protection key that is closed in every thread: who touches it gets
// SIGSEGV, and a system call EFAULT. What stands for the GPU opens it while it works. A thread that is started meanwhile
// (a kernel's helper) has its starter's rights, for as long as it lives.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DEVICE_RIGHTS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DEVICE_RIGHTS_H_

#include <cstdint>

namespace simcuda {

// Takes a key where the settings want one. False, and one line says so: they insist on it, and there is none. Once,
// before there is device memory.
bool TakeDeviceKey();

// Whether device memory is closed to the host. Any thread, also in a signal handler.
bool IsDeviceMemoryClosed();

// Who may touch pages that are made accessible: the GPU alone, as device memory, or the host as well.
enum class Touch { kDevice, kAnybody };

// Makes whole pages readable and writable, or nobody's again, whoever could touch them before. False: the kernel refused.
bool OpenPages(uint64_t address, uint64_t size, Touch touch);
bool ClosePages(uint64_t address, uint64_t size);

// Lets this thread touch device memory while it lives. They nest. Does nothing without keys. Also in a signal handler,
// which begins without rights, whatever the thread had.
class DeviceRights {
 public:
  DeviceRights();
  ~DeviceRights();
  DeviceRights(const DeviceRights&) = delete;
  DeviceRights& operator=(const DeviceRights&) = delete;

 private:
  int before_ = 0;  // as pkey_get has it
};

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DEVICE_RIGHTS_H_
