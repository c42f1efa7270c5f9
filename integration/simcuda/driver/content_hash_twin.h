// Registers the host's twin of Spillway's content hash, so that its PTX can be launched here.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CONTENT_HASH_TWIN_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CONTENT_HASH_TWIN_H_

namespace simcuda {

// Once, before the driver is alive.
void RegisterContentHash();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CONTENT_HASH_TWIN_H_
