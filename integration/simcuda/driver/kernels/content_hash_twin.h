// Registers the host's twin of Spillway's content hash, so that its PTX can be launched here: only the
// kernels' names are read from an image, no code, and a name runs the host function that is registered under
// it. cuInit calls this; it cannot fail.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_CONTENT_HASH_TWIN_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_CONTENT_HASH_TWIN_H_

namespace simcuda {

// Called once, before the driver is alive.
void RegisterContentHash();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_CONTENT_HASH_TWIN_H_
