// Modules and libraries: the kernels that one image names, with a handle for each that was asked for, and the memory
// of its variables.
// A CUmodule and a CUlibrary are both a Module. Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MODULE_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MODULE_H_

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "integration/simcuda/driver/image.h"
#include "integration/simcuda/driver/kernel.h"

namespace simcuda {

class Context;

struct Module {
  static constexpr uint32_t kMagic = 0x4d4f4455;
  std::atomic<uint32_t> magic{kMagic};
  std::vector<std::string> kernels;  // as the image lists them
  std::vector<ImageGlobal> globals;
  Context* context = nullptr;  // of a module; a library belongs to all contexts

  std::mutex mutex;                                                       // guards the rest
  std::map<std::string, FunctionHandle*> functions;                       // CUfunction by name
  std::map<std::string, FunctionHandle*> kernel_handles;                  // CUkernel by name
  std::map<std::pair<Context*, std::string>, uint64_t> global_addresses;  // of those that were asked for

  static Module* FromHandle(const void* handle);
  // Reads an image; null and INVALID_IMAGE when it is none.
  static CUresult Load(const void* image, Context* context, Module** module);
  // The handle of a kernel: NOT_FOUND when the image does not name it or nothing is registered under the name.
  CUresult Find(const std::string& name, bool as_kernel, FunctionHandle** function);
  // The variable's memory, made at the first call; for a library, that of `user`'s context.
  CUresult FindGlobal(const std::string& name, Context& user, uint64_t* address, size_t* bytes);
  // Handles of an unloaded module are none any more; their memory stays, so that a late use is seen.
  void Unload();
};

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MODULE_H_
