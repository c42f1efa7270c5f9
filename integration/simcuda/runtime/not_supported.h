// The bridge between not_supported.cc, which must not see NVIDIA's prototypes, and errors.cc. The functions
// of not_supported.def are exported so that any library built with nvcc can be loaded.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_NOT_SUPPORTED_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_NOT_SUPPORTED_H_

namespace simcuda {

// Records cudaErrorNotSupported as this thread's last error and returns its number. Thread-safe.
int RecordNotSupported();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_NOT_SUPPORTED_H_
