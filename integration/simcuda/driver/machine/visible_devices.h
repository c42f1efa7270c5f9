// The devices that a process sees, by CUDA_VISIBLE_DEVICES: a list of numbers or of the beginnings of UUIDs
// ("GPU-73696d..."), in the order in which the process will count them. Pure; for cuInit.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_VISIBLE_DEVICES_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_VISIBLE_DEVICES_H_

#include <string>
#include <vector>

namespace simcuda {

// Returns the 16 bytes of a device's UUID, by its number on the machine.
std::string DeviceUuid(int number);

// Returns the numbers of the devices that are seen, of `count` that are there. Null: all. Entries behind one
// that names no device are not seen, and a device that is named twice hides them all, both as in CUDA.
std::vector<int> VisibleDevices(const char* list, int count);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_VISIBLE_DEVICES_H_
