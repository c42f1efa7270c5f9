// Registers the host's twin of Spillway's content hash, so that its PTX can be launched here: of an image the
// kernels' names are read and no code, and a name runs the host function that is registered under it. Called
// by cuInit; nothing fails.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_CONTENT_HASH_TWIN_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_CONTENT_HASH_TWIN_H_

namespace simcuda {

// Once, before the driver is alive.
void RegisterContentHash();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_CONTENT_HASH_TWIN_H_
