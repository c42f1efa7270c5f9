#include "integration/simcuda/driver/module.h"

#include <algorithm>
#include <cstdio>

#include "integration/simcuda/driver/address_space.h"
#include "integration/simcuda/driver/context.h"

namespace simcuda {

Module* Module::FromHandle(const void* handle) {
  if (reinterpret_cast<uintptr_t>(handle) < 4096) return nullptr;
  auto* module = static_cast<Module*>(const_cast<void*>(handle));
  return module->magic == kMagic ? module : nullptr;
}

CUresult Module::Load(const void* image, Context* context, Module** module) {
  ImageContents contents;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!ReadImage(image, &contents)) return CUDA_ERROR_INVALID_IMAGE;
  *module = new Module;
  (*module)->kernels = std::move(contents.kernels);
  (*module)->globals = std::move(contents.globals);
  (*module)->context = context;
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

CUresult Module::FindGlobal(const std::string& name, Context& user, uint64_t* address, size_t* bytes) {
  const auto global = std::find_if(globals.begin(), globals.end(),
                                   [&name](const ImageGlobal& candidate) { return candidate.name == name; });
  if (global == globals.end()) return CUDA_ERROR_NOT_FOUND;
  Context& owner = context != nullptr ? *context : user;
  std::lock_guard<std::mutex> lock(mutex);
  uint64_t& start = global_addresses[{&owner, name}];
  if (start == 0) {
    const CUresult result =
        GetAddressSpace().Allocate(global->bytes, &owner.device(), &owner, AllocationKind::kModule, &start);
    if (result != CUDA_SUCCESS) return result;
  }
  *address = start;
  *bytes = global->bytes;
  return CUDA_SUCCESS;
}

void Module::Unload() {
  for (const auto& [owner, address] : global_addresses) owner.first->Synchronize();
  std::lock_guard<std::mutex> lock(mutex);
  magic = 0;
  for (auto* handles : {&functions, &kernel_handles}) {
    for (auto& [name, handle] : *handles) {
      if (handle != nullptr) handle->magic = 0;
    }
  }
  for (const auto& [owner, address] : global_addresses) GetAddressSpace().Free(address);
  global_addresses.clear();
}

}  // namespace simcuda
