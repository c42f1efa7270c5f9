// Host twins: host functions that take the place of kernels whose device code cannot run here. Owns the table
// of twins of PyTorch kernels that are launched outside operators, and the way to the stand-in driver's
// registration. Every other kernel is looked up by its name among those registered with the driver, and stops
// the process if there is none: a launch that does nothing would be a wrong result.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_TWINS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_TWINS_H_

#include "integration/simcuda/runtime/driver_table.h"
#include "integration/simcuda/runtime/kernel_registry.h"

namespace simcuda {

// Returns the driver's kernel, as launches take it in place of a function: one that was registered with the
// driver under the kernel's name, otherwise a twin of the table. Does not return if there is neither: prints
// the kernel's demangled name and aborts. A context must be current. Thread-safe.
CUfunction FunctionOf(const DriverTable& driver, KernelEntry* kernel);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_TWINS_H_
