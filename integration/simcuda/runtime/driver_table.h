// The driver as the stand-in runtime sees it: one table of typed entry points. It is filled at the first use
// by dlopen("libcuda.so.1"), one dlsym of cuGetProcAddress_v2 and look-ups through it, which is how NVIDIA's
// runtime reaches the driver. Owns the table and the dlopen handle; knows no context, device or error text.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_DRIVER_TABLE_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_DRIVER_TABLE_H_

#include "integration/simcuda/runtime/runtime_api.h"

#include <cudaTypedefs.h>

namespace simcuda {

// Types of cudaProfilerTypedefs.h, which includes a file that no wheel of PyTorch's brings.
using PFN_cuProfilerStart_v4000 = CUresult (*)();
using PFN_cuProfilerStop_v4000 = CUresult (*)();

// A driver entry point that may be absent: calling an absent one is CUDA_ERROR_NOT_SUPPORTED. Set once,
// before the table is given out.
template <typename Pointer>
class DriverEntry;

template <typename... Args>
class DriverEntry<CUresult (*)(Args...)> {
 public:
  CUresult operator()(Args... args) const {
    return function_ == nullptr ? CUDA_ERROR_NOT_SUPPORTED : function_(args...);
  }
  void Set(void* address) { function_ = reinterpret_cast<CUresult (*)(Args...)>(address); }
  bool present() const { return function_ != nullptr; }

 private:
  CUresult (*function_)(Args...) = nullptr;
};

struct DriverTable {
#define DRIVER_ENTRY(name, version, per_thread_version) DriverEntry<PFN_cu##name##_v##version> name;
#include "integration/simcuda/runtime/driver_entries.def"
#undef DRIVER_ENTRY
  // The resolver itself, for cudaGetDriverEntryPoint; absent with a driver from before 12.0.
  DriverEntry<PFN_cuGetProcAddress_v12000> GetProcAddress;
};

// Returns the table, or null if there is no usable libcuda.so.1. Opens the driver at the first call; later
// calls are one atomic load. Thread-safe.
const DriverTable* LoadedDriver();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_DRIVER_TABLE_H_
