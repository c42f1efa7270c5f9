// Kernels that the driver handed out through cudaLibraryGetKernel: they may be launched like registered ones.
// Owns the set of their handles.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_DRIVER_KERNELS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_DRIVER_KERNELS_H_

namespace simcuda {

// Returns whether `kernel` came from cudaLibraryGetKernel. Thread-safe.
bool IsDriverKernel(const void* kernel);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_DRIVER_KERNELS_H_
