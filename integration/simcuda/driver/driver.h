// The life of the driver in this process: made by the first cuInit, dead in a forked child. Nothing happens when
// the library is only loaded.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_DRIVER_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_DRIVER_H_

#include "integration/simcuda/driver/device.h"
#include "integration/simcuda/driver/driver_api.h"

namespace simcuda {

// cuInit has succeeded in this process and it is not a fork of the one where it did.
bool IsAlive();

CUresult Initialise();

int DeviceCount();
// Null when there is no such device.
Device* FindDevice(int ordinal);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_DRIVER_H_
