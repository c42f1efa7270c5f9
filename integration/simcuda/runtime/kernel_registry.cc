// Registration of kernels: see kernel_registry.h, and the entry points that nvcc's start-up code calls.
#include "integration/simcuda/runtime/kernel_registry.h"

namespace simcuda {

KernelRegistry& KernelRegistry::Get() {
  // Never destroyed: other libraries unregister from their own exit handlers, in any order.
  static KernelRegistry& registry = *new KernelRegistry;
  return registry;
}

FatBinary* KernelRegistry::AddBinary(const void* image) {
  std::lock_guard<std::mutex> lock(mu_);
  FatBinary& binary = binaries_.emplace_back();
  binary.image = image;
  return &binary;
}

void KernelRegistry::AddKernel(const FatBinary* binary, const void* host_function, const char* name) {
  std::lock_guard<std::mutex> lock(mu_);
  kernels_.emplace_back(host_function, name, binary);
}

KernelEntry* KernelRegistry::Find(const void* host_function_or_handle) {
  std::lock_guard<std::mutex> lock(mu_);
  if (indexed_ < kernels_.size()) index_.reserve(2 * kernels_.size());
  for (; indexed_ < kernels_.size(); ++indexed_) {
    KernelEntry& kernel = kernels_[indexed_];
    // A library that was closed and opened again registers the same address anew: the newest entry counts.
    index_[kernel.host_function] = &kernel;
    index_[&kernel] = &kernel;
  }
  const auto found = index_.find(host_function_or_handle);
  if (found == index_.end()) return nullptr;
  return found->second->binary->registered.load() ? found->second : nullptr;
}

size_t KernelRegistry::kernel_count() {
  std::lock_guard<std::mutex> lock(mu_);
  return kernels_.size();
}

}  // namespace simcuda

using simcuda::FatBinary;
using simcuda::KernelRegistry;

void** __cudaRegisterFatBinary(void* fat_binary) {
  return reinterpret_cast<void**>(KernelRegistry::Get().AddBinary(fat_binary));
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** handle) {
  if (handle != nullptr) reinterpret_cast<FatBinary*>(handle)->registered.store(false);
}

void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* device_name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  KernelRegistry::Get().AddKernel(reinterpret_cast<FatBinary*>(handle), host_function, device_name);
}

// Device globals have no storage here: cudaGetSymbolAddress and the symbol copies say so when they are used.
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}

char __cudaInitModule(void**) { return 1; }
