// The kernels that nvcc-compiled code in this process has registered, by the address of their host stub.
// Registering only appends a name (PyTorch registers tens of thousands at import); the index is brought up to
// date at the first look-up. Names and fat binaries stay the callers'. Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_KERNEL_REGISTRY_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_KERNEL_REGISTRY_H_

#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "integration/simcuda/runtime/runtime_api.h"

namespace simcuda {

// One fat binary. Its kernels are unknown once it has been unregistered.
struct FatBinary {
  const void* image = nullptr;
  std::atomic<bool> registered{true};
};

// One kernel. Its address is also the cudaKernel_t that callers hold, so entries never move or die.
struct KernelEntry {
  KernelEntry(const void* host_function_in, const char* name_in, const FatBinary* binary_in)
      : host_function(host_function_in), name(name_in), binary(binary_in) {}

  const void* host_function;
  const char* name;  // mangled; the caller's string
  const FatBinary* binary;
  // The driver's function that runs this kernel, once it has been found; stored and loaded by FunctionOf.
  std::atomic<CUfunction> function{nullptr};
};

class KernelRegistry {
 public:
  static KernelRegistry& Get();

  FatBinary* AddBinary(const void* image);
  void AddKernel(const FatBinary* binary, const void* host_function, const char* name);

  // Returns the kernel of a host stub or of a handle that we gave out; null for anything else.
  KernelEntry* Find(const void* host_function_or_handle);

  size_t kernel_count();

 private:
  std::mutex mu_;
  // Guarded by mu_.
  std::deque<FatBinary> binaries_;
  std::deque<KernelEntry> kernels_;
  std::unordered_map<const void*, KernelEntry*> index_;
  size_t indexed_ = 0;  // kernels_[0 .. indexed_) are in index_
};

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_KERNEL_REGISTRY_H_
