// The life of the driver in this process, and its devices: alive from the first cuInit on, dead in a forked
// child. Merely loading the library has no effect. Any thread may ask.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DRIVER_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DRIVER_H_

#include <vector>

#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/machine/device.h"

namespace simcuda {

// Returns whether cuInit has succeeded in this process, and it is not a fork of the one in which it did.
bool IsAlive();

int DeviceCount();
// Returns null if there is no such device.
Device* FindDevice(int ordinal);
// Finds a device for a call of the driver: NOT_INITIALIZED before cuInit, INVALID_DEVICE if there is no such
// device.
CUresult EnterDevice(CUdevice ordinal, Device** device);

// For cuInit: makes the rest of the driver, by start(), and is alive from then on. Any later call returns
// success, or NOT_INITIALIZED in a forked child; a start that failed is tried again.
CUresult ComeAlive(CUresult (*start)());
// For start(): makes a device of `memory_bytes` for each of the machine's devices in `numbers`.
void MakeDevices(const std::vector<int>& numbers, uint64_t memory_bytes);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DRIVER_H_
