// Modules and libraries: the kernels that one image names, with a handle for each that was asked for, and the
// memory of its variables. A CUmodule and a CUlibrary are both a Module, of different kinds; a library has a
// module of its own for each context that asks for one. Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_MODULE_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_MODULE_H_

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "integration/simcuda/driver/kernels/image.h"
#include "integration/simcuda/driver/kernels/kernel.h"

namespace simcuda {

class Context;

struct Module : HandleObject {
  std::vector<ImageKernel> kernels;  // as the image lists them
  std::vector<ImageGlobal> globals;
  Context* context = nullptr;  // of a module; a library belongs to all contexts
  Module* library = nullptr;   // of the module of a library

  std::mutex mutex;                                                       // guards the rest
  std::map<std::string, FunctionHandle*> functions;                       // by name; CUkernels of a library
  std::map<Context*, Module*> modules;                                    // of a library
  std::map<std::pair<Context*, std::string>, uint64_t> global_addresses;  // of those that were asked for

  bool is_library() const { return IsLive(HandleKind::kLibrary); }
  // Reads an image into a module of `context`, or (null) a library. Returns INVALID_IMAGE if it is none.
  static CUresult Load(const void* image, Context* context, Module** module);
  // Finds the handle of a kernel, a CUkernel of a library and a CUfunction of a module. Returns NOT_FOUND if
  // the image does not name it or nothing is registered under the name.
  CUresult Find(const std::string& name, FunctionHandle** function);
  // Returns a library's module in `user`'s context, made at the first call.
  Module* ModuleIn(Context& user);
  // Finds the variable's memory, made at the first call; for a library, that of `user`'s context.
  CUresult FindGlobal(const std::string& name, Context& user, uint64_t* address, size_t* bytes);
  // Makes the handles of an unloaded module or library invalid; their memory stays, so that a late use is
  // seen.
  void Unload();

 private:
  friend void EndModulesOf(Context& context);
  // Makes its own handle and those of its functions invalid. Called with the mutex.
  void EndHandles();
  // Does the same, without the mutex; its variables are freed with the context.
  void End();
};

// Ends a context's modules: those that were loaded into it, and those of libraries there. The libraries go
// on.
void EndModulesOf(Context& context);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_MODULE_H_
