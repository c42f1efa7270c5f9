// The initialization of the driver and the context that a call runs in. Owns the outcome of cuInit, this
// thread's device, the retained primary contexts, and the mark of a forked child. Every entry point of the
// runtime goes through WithDriver (needs cuInit only) or WithContext (needs a current context).
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_CONTEXT_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_CONTEXT_H_

#include "integration/simcuda/runtime/driver_table.h"
#include "integration/simcuda/runtime/errors.h"

namespace simcuda {

// Opens and initializes the driver once. Returns cudaErrorInsufficientDriver if there is none,
// cudaErrorNoDevice if it has no device, cudaErrorInitializationError in a child that was forked after
// initialization. Thread-safe.
cudaError_t InitializeDriver(const DriverTable** driver);

// Like InitializeDriver, and makes the primary context of this thread's device current if the thread has no
// context.
cudaError_t EnsureContext(const DriverTable** driver);

// Retains the primary context of `device` (once a process) and makes it current for this thread.
cudaError_t BindDevice(const DriverTable& driver, int device);

// Finds the retained primary context of `device`, without making it current.
cudaError_t PrimaryContext(const DriverTable& driver, int device, CUcontext* context);

// Forgets the retained context of `device`: cudaDeviceReset destroyed it.
void ForgetPrimaryContext(int device);

// Returns the device that this thread's next context-less call uses (cudaSetDevice), 0 at first.
int ThreadDevice();

template <typename Call>
cudaError_t WithDriver(Call&& call) {
  const DriverTable* driver = nullptr;
  const cudaError_t error = InitializeDriver(&driver);
  return Record(error != cudaSuccess ? error : ToRuntimeError(call(*driver)));
}

template <typename Call>
cudaError_t WithContext(Call&& call) {
  const DriverTable* driver = nullptr;
  const cudaError_t error = EnsureContext(&driver);
  return Record(error != cudaSuccess ? error : ToRuntimeError(call(*driver)));
}

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_CONTEXT_H_
