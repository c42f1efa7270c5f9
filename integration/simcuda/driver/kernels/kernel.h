// Registered kernels and the handles that stand for them. A CUfunction and a CUkernel are both a
// FunctionHandle, of different kinds; handles of registered kernels live as long as the process, those of
// modules as long as the module. Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_KERNEL_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_KERNEL_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/machine/handles.h"

namespace simcuda {

class Device;
struct Module;

// A kernel as it was registered, or as an image lays it out. Never freed: queued launches and handles refer
// to it.
struct KernelDefinition {
  std::string name;
  simcuda_kernel_function run = nullptr;  // the host function that does its work, on the stream's thread
  void* user = nullptr;
  std::vector<simcuda_parameter> parameters;
  size_t parameter_bytes = 0;
  bool layout_of_image = false;  // the parameters are those of the image that names it
  mutable std::atomic<simcuda_release_function> release{nullptr};
};

struct FunctionHandle : HandleObject {
  const KernelDefinition* kernel = nullptr;
  Module* module = nullptr;  // null: the handle comes from registration
  std::atomic<int> dynamic_shared_bytes_max{48 << 10};

  // Loads the code on the device if that has not been done (SIMCUDA_CODE_BYTES). Returns OUT_OF_MEMORY on a
  // full device.
  CUresult LoadCode(Device* device);
  // Ends the handle: its code takes no memory any more.
  void UnloadCode();

 private:
  std::mutex code_mutex_;
  Device* code_device_ = nullptr;  // null: not loaded; guarded by the mutex, as is the next
  uint64_t code_bytes_ = 0;
};

// Returns null if the handle is no live one of that kind.
inline FunctionHandle* FunctionFromHandle(const void* handle, HandleKind kind) {
  return LiveObject<FunctionHandle>(handle, kind);
}
// Returns what launches and occupancy take: a CUfunction, or a CUkernel cast to one.
inline FunctionHandle* FunctionOrKernel(const void* handle) {
  FunctionHandle* const function = FunctionFromHandle(handle, HandleKind::kFunction);
  return function != nullptr ? function : FunctionFromHandle(handle, HandleKind::kKernel);
}

// Returns the first kernel registered under the name, of those that take `parameters` (-1: any number); or
// null.
const KernelDefinition* FindKernel(const std::string& name, long parameters);
// Returns the kernel with the parameters laid out as in an image: itself, one made for the image, or null if
// it has another layout.
const KernelDefinition* WithLayout(const KernelDefinition* kernel,
                                   const std::vector<simcuda_parameter>& layout);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_KERNEL_H_
