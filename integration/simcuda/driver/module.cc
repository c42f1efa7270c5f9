#include "integration/simcuda/driver/module.h"

#include <algorithm>
#include <cstdio>

#include "integration/simcuda/driver/image.h"

namespace simcuda {

Module* Module::FromHandle(const void* handle) {
  if (reinterpret_cast<uintptr_t>(handle) < 4096) return nullptr;
  auto* module = static_cast<Module*>(const_cast<void*>(handle));
  return module->magic == kMagic ? module : nullptr;
}

CUresult Module::Load(const void* image, Module** module) {
  std::vector<std::string> kernels;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!ReadImage(image, &kernels)) return CUDA_ERROR_INVALID_IMAGE;
  *module = new Module;
  (*module)->kernels = std::move(kernels);
  // Never freed: a handle of an unloaded module must still be seen to be none.
  static std::mutex* mutex = new std::mutex;
  static auto* modules = new std::vector<const Module*>;
  std::lock_guard<std::mutex> lock(*mutex);
  modules->push_back(*module);
  return CUDA_SUCCESS;
}

CUresult Module::Find(const std::string& name, bool as_kernel, FunctionHandle** function) {
  if (std::find(kernels.begin(), kernels.end(), name) == kernels.end()) return CUDA_ERROR_NOT_FOUND;
  std::lock_guard<std::mutex> lock(mutex);
  FunctionHandle*& handle = (as_kernel ? kernel_handles : functions)[name];
  if (handle == nullptr) {
    const KernelDefinition* kernel = FindKernel(name);
    if (kernel == nullptr) {
      std::fprintf(stderr,
                   "simcuda: kernel %s is asked for, but no host function is registered under that name\n",
                   name.c_str());
      return CUDA_ERROR_NOT_FOUND;
    }
    handle = new FunctionHandle;
    handle->kernel = kernel;
    handle->module = this;
    handle->is_kernel = as_kernel;
  }
  *function = handle;
  return CUDA_SUCCESS;
}

void Module::Unload() {
  std::lock_guard<std::mutex> lock(mutex);
  magic = 0;
  for (auto* handles : {&functions, &kernel_handles}) {
    for (auto& [name, handle] : *handles) {
      if (handle != nullptr) handle->magic = 0;
    }
  }
}

}  // namespace simcuda
