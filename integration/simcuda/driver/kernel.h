// Registered kernels and the handles that stand for them. A CUfunction and a CUkernel are both a FunctionHandle;
// handles of registered kernels live as long as the process, those of modules as long as the module.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNEL_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNEL_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "integration/simcuda/driver/driver_api.h"

namespace simcuda {

struct Module;

struct KernelDefinition {
  std::string name;
  simcuda_kernel_function run = nullptr;
  void* user = nullptr;
  std::vector<simcuda_parameter> parameters;
  size_t parameter_bytes = 0;
  mutable std::atomic<simcuda_release_function> release{nullptr};
};

struct FunctionHandle {
  static constexpr uint32_t kMagic = 0x46554e43;
  std::atomic<uint32_t> magic{kMagic};
  const KernelDefinition* kernel = nullptr;
  Module* module = nullptr;  // null: the handle that registration gave
  bool is_kernel = false;    // a CUkernel of a library
  std::atomic<int> dynamic_shared_bytes_max{48 << 10};
};

// Null when the handle is none.
FunctionHandle* FunctionFromHandle(const void* handle);

// The first kernel registered under the name, or null.
const KernelDefinition* FindKernel(const std::string& name);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNEL_H_
