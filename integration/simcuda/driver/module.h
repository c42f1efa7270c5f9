// Modules and libraries: the kernels that one image names, with a handle for each that was asked for.
// A CUmodule and a CUlibrary are both a Module. Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MODULE_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MODULE_H_

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "integration/simcuda/driver/kernel.h"

namespace simcuda {

struct Module {
  static constexpr uint32_t kMagic = 0x4d4f4455;
  std::atomic<uint32_t> magic{kMagic};
  std::vector<std::string> kernels;  // as the image lists them

  std::mutex mutex;                                       // guards the rest
  std::map<std::string, FunctionHandle*> functions;       // CUfunction by name
  std::map<std::string, FunctionHandle*> kernel_handles;  // CUkernel by name

  static Module* FromHandle(const void* handle);
  // Reads an image; null and INVALID_IMAGE when it is none.
  static CUresult Load(const void* image, Module** module);
  // The handle of a kernel: NOT_FOUND when the image does not name it or nothing is registered under the name.
  CUresult Find(const std::string& name, bool as_kernel, FunctionHandle** function);
  // Handles of an unloaded module are none any more; their memory stays, so that a late use is seen.
  void Unload();
};

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MODULE_H_
