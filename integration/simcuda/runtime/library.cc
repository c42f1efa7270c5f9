// cudaLibrary*: libraries of kernels that a program loads at run time, handed to the driver; the set of kernels that
// came from there (driver_kernels.h); and the driver's own entry points for callers that ask by name.
#include <mutex>
#include <unordered_set>

#include "integration/simcuda/runtime/context.h"
#include "integration/simcuda/runtime/driver_kernels.h"

using simcuda::DriverTable;
using simcuda::Record;
using simcuda::WithDriver;

namespace {

struct DriverKernels {
  std::mutex mu;
  std::unordered_set<const void*> handles;  // guarded by mu
};

DriverKernels& Kernels() {
  static DriverKernels& kernels = *new DriverKernels;  // never destroyed: exit handlers may still launch
  return kernels;
}

cudaError_t EntryPoint(const char* symbol, void** function, unsigned int version, unsigned long long flags,
                       cudaDriverEntryPointQueryResult* status) {
  if (symbol == nullptr || function == nullptr) return Record(cudaErrorInvalidValue);
  *function = nullptr;
  return WithDriver([&](const DriverTable& driver) {
    CUdriverProcAddressQueryResult why = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result = driver.GetProcAddress(symbol, function, static_cast<int>(version), flags, &why);
    if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(why);
    // A name that is not there is an answer, not a failure, for callers that look at the status.
    return result == CUDA_SUCCESS && *function == nullptr && status == nullptr ? CUDA_ERROR_NOT_FOUND
                                                                               : result;
  });
}

}  // namespace

bool simcuda::IsDriverKernel(const void* kernel) {
  DriverKernels& kernels = Kernels();
  std::lock_guard<std::mutex> lock(kernels.mu);
  return kernels.handles.contains(kernel);
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption* jit_options,
                                void** jit_values, unsigned int jit_count, cudaLibraryOption* options,
                                void** values, unsigned int count) {
  return WithDriver([&](const DriverTable& driver) {
    return driver.LibraryLoadData(library, code, reinterpret_cast<CUjit_option*>(jit_options), jit_values,
                                  jit_count, reinterpret_cast<CUlibraryOption*>(options), values, count);
  });
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* file, cudaJitOption* jit_options,
                                    void** jit_values, unsigned int jit_count, cudaLibraryOption* options,
                                    void** values, unsigned int count) {
  return WithDriver([&](const DriverTable& driver) {
    return driver.LibraryLoadFromFile(library, file, reinterpret_cast<CUjit_option*>(jit_options), jit_values,
                                      jit_count, reinterpret_cast<CUlibraryOption*>(options), values, count);
  });
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  return WithDriver([&](const DriverTable& driver) { return driver.LibraryUnload(library); });
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  if (kernel == nullptr) return Record(cudaErrorInvalidValue);
  return WithDriver([&](const DriverTable& driver) {
    const CUresult result = driver.LibraryGetKernel(kernel, library, name);
    if (result == CUDA_SUCCESS) {
      DriverKernels& kernels = Kernels();
      std::lock_guard<std::mutex> lock(kernels.mu);
      kernels.handles.insert(*kernel);
    }
    return result;
  });
}

cudaError_t cudaLibraryGetKernelCount(unsigned int* count, cudaLibrary_t library) {
  return WithDriver([&](const DriverTable& driver) { return driver.LibraryGetKernelCount(count, library); });
}

cudaError_t cudaLibraryGetGlobal(void** device_pointer, size_t* bytes, cudaLibrary_t library,
                                 const char* name) {
  return WithDriver([&](const DriverTable& driver) {
    return driver.LibraryGetGlobal(reinterpret_cast<CUdeviceptr*>(device_pointer), bytes, library, name);
  });
}

cudaError_t cudaLibraryGetManaged(void** device_pointer, size_t* bytes, cudaLibrary_t library,
                                  const char* name) {
  return WithDriver([&](const DriverTable& driver) {
    return driver.LibraryGetManaged(reinterpret_cast<CUdeviceptr*>(device_pointer), bytes, library, name);
  });
}

cudaError_t cudaLibraryGetUnifiedFunction(void** function, cudaLibrary_t library, const char* symbol) {
  return WithDriver(
      [&](const DriverTable& driver) { return driver.LibraryGetUnifiedFunction(function, library, symbol); });
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute, int value,
                                            int device) {
  return WithDriver([&](const DriverTable& driver) {
    // Registered kernels are host functions here, to which no attribute applies.
    if (!simcuda::IsDriverKernel(kernel)) return CUDA_SUCCESS;
    return driver.KernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value, kernel, device);
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* status) {
  return EntryPoint(symbol, function, version, flags, status);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return EntryPoint(symbol, function, CUDART_VERSION, flags, status);
}
#pragma GCC diagnostic pop
