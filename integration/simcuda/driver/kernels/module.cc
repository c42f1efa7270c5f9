#include "integration/simcuda/driver/kernels/module.h"

#include <algorithm>
#include <cstdio>

#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

// All that were ever loaded.
struct Loaded {
  std::mutex mutex;
  std::vector<Module*> modules;
};
Loaded& GetLoaded() {
  static Loaded* loaded = new Loaded;  // never destroyed: threads outlive static destructors
  return *loaded;
}

}  // namespace

CUresult Module::Load(const void* image, Context* context, Module** module) {
  ImageContents contents;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!ReadImage(image, &contents)) return CUDA_ERROR_INVALID_IMAGE;
  *module = new Module;
  (*module)->kernels = std::move(contents.kernels);
  (*module)->globals = std::move(contents.globals);
  (*module)->context = context;
  (*module)->Live(context == nullptr ? HandleKind::kLibrary : HandleKind::kModule);
  Loaded& loaded = GetLoaded();
  std::lock_guard<std::mutex> lock(loaded.mutex);
  loaded.modules.push_back(*module);
  return CUDA_SUCCESS;
}

CUresult Module::Find(const std::string& name, FunctionHandle** function) {
  const auto listed = std::find_if(kernels.begin(), kernels.end(),
                                   [&name](const ImageKernel& candidate) { return candidate.name == name; });
  if (listed == kernels.end()) return CUDA_ERROR_NOT_FOUND;
  std::lock_guard<std::mutex> lock(mutex);
  FunctionHandle*& handle = functions[name];
  if (handle == nullptr) {
    const KernelDefinition* kernel = FindKernel(name, listed->parameters);
    if (kernel == nullptr) {
      std::fprintf(stderr,
                   "simcuda: kernel %s is asked for, but no host function is registered under that name\n",
                   name.c_str());
      return CUDA_ERROR_NOT_FOUND;
    }
    if (listed->has_layout || kernel->layout_of_image) {
      kernel = listed->has_layout ? WithLayout(kernel, listed->layout) : nullptr;
      if (kernel == nullptr) {
        std::fprintf(stderr,
                     "simcuda: the image and the host function of kernel %s differ in its parameters\n",
                     name.c_str());
        return CUDA_ERROR_NOT_FOUND;
      }
    }
    handle = new FunctionHandle;
    handle->kernel = kernel;
    handle->module = this;
    handle->Live(is_library() ? HandleKind::kKernel : HandleKind::kFunction);
  }
  *function = handle;
  return CUDA_SUCCESS;
}

Module* Module::ModuleIn(Context& user) {
  std::lock_guard<std::mutex> lock(mutex);
  Module*& module = modules[&user];
  if (module == nullptr) {
    module = new Module;
    module->kernels = kernels;
    module->globals = globals;
    module->context = &user;
    module->library = this;
    module->Live(HandleKind::kModule);
  }
  return module;
}

CUresult Module::FindGlobal(const std::string& name, Context& user, uint64_t* address, size_t* bytes) {
  const auto global = std::find_if(globals.begin(), globals.end(),
                                   [&name](const ImageGlobal& candidate) { return candidate.name == name; });
  if (global == globals.end()) return CUDA_ERROR_NOT_FOUND;
  if (library != nullptr) return library->FindGlobal(name, *context, address, bytes);  // the same memory
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
  EndHandles();
  for (auto& [user, module] : modules) module->Unload();
  for (const auto& [owner, address] : global_addresses) GetAddressSpace().Free(address);
  global_addresses.clear();
}

void Module::EndHandles() {
  Die();
  for (auto& [name, handle] : functions) {
    if (handle == nullptr) continue;
    handle->Die();
    handle->UnloadCode();
  }
}

void Module::End() {
  std::lock_guard<std::mutex> lock(mutex);
  EndHandles();
  global_addresses.clear();
}

void EndModulesOf(Context& context) {
  Loaded& loaded = GetLoaded();
  std::lock_guard<std::mutex> all(loaded.mutex);
  for (Module* module : loaded.modules) {
    if (module->context == &context && module->IsLive(HandleKind::kModule)) module->End();
    if (!module->is_library()) continue;
    std::lock_guard<std::mutex> lock(module->mutex);
    if (const auto found = module->modules.find(&context); found != module->modules.end()) {
      found->second->End();
      module->modules.erase(found);
    }
    std::erase_if(module->global_addresses, [&](const auto& entry) { return entry.first.first == &context; });
  }
}

}  // namespace simcuda
