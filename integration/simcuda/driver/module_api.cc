// Driver functions: modules and libraries.
#include <cstdio>
#include <memory>
#include <vector>

#include "integration/simcuda/driver/context.h"
#include "integration/simcuda/driver/driver.h"
#include "integration/simcuda/driver/hardware_time.h"
#include "integration/simcuda/driver/module.h"

namespace simcuda {
namespace {

// A file's bytes and a NUL behind them.
bool ReadFile(const char* path, std::vector<char>* bytes) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "rbe"), &std::fclose);
  if (file == nullptr) return false;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof(buffer), file.get())) {
    bytes->insert(bytes->end(), buffer, buffer + got);
  }
  bytes->push_back('\0');
  return std::ferror(file.get()) == 0;
}

void WaitForEveryStream() {
  ForEachStream([](Stream& stream) { stream.WaitFor(stream.enqueued()); });
}

CUresult LoadModule(CUmodule* handle, const void* image) {
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ModuleLoadTime time;
  time.Spend(&WaitForEveryStream);
  Module* module = nullptr;
  const CUresult result = Module::Load(image, context, &module);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUmodule>(module);
  return result;
}

CUresult LoadLibrary(CUlibrary* handle, const void* image) {
  if (CUresult result = EnterAny(); result != CUDA_SUCCESS) return result;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ModuleLoadTime time;
  time.Spend(&WaitForEveryStream);
  Module* module = nullptr;
  const CUresult result = Module::Load(image, nullptr, &module);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUlibrary>(module);
  return result;
}

CUresult Find(const void* handle, const char* name, bool as_kernel, void** function) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  Module* module = Module::FromHandle(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FunctionHandle* found = nullptr;
  const CUresult result = module->Find(name, as_kernel, &found);
  if (result == CUDA_SUCCESS) *function = found;
  return result;
}

// Either output may be null.
CUresult FindGlobal(const void* handle, const char* name, CUdeviceptr* pointer, size_t* bytes) {
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  Module* module = Module::FromHandle(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  size_t size = 0;
  const CUresult result = module->FindGlobal(name, *context, &address, &size);
  if (result != CUDA_SUCCESS) return result;
  if (pointer != nullptr) *pointer = address;
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

// Handles of up to `most` kernels of the image that have a host function.
CUresult Enumerate(const void* handle, bool as_kernel, void** functions, unsigned int most) {
  Module* module = Module::FromHandle(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < most && i < module->kernels.size(); ++i) {
    const CUresult result = Find(handle, module->kernels[i].c_str(), as_kernel, &functions[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Count(const void* handle, unsigned int* count) {
  const Module* module = Module::FromHandle(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned int>(module->kernels.size());
  return CUDA_SUCCESS;
}

CUresult Unload(const void* handle) {
  if (CUresult result = EnterAny(); result != CUDA_SUCCESS) return result;
  Module* module = Module::FromHandle(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  module->Unload();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

using simcuda::FunctionFromHandle;
using simcuda::FunctionHandle;

SIMCUDA_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return simcuda::LoadModule(module, image);
}
SIMCUDA_API CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*,
                                        void**) {
  return simcuda::LoadModule(module, image);
}
SIMCUDA_API CUresult cuModuleLoad(CUmodule* module, const char* path) {
  std::vector<char> bytes;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return simcuda::ReadFile(path, &bytes) ? simcuda::LoadModule(module, bytes.data())
                                         : CUDA_ERROR_FILE_NOT_FOUND;
}
SIMCUDA_API CUresult cuModuleUnload(CUmodule module) { return simcuda::Unload(module); }
SIMCUDA_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return simcuda::Find(module, name, false, reinterpret_cast<void**>(function));
}
SIMCUDA_API CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule module) {
  return simcuda::Count(module, count);
}
SIMCUDA_API CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int most, CUmodule module) {
  return simcuda::Enumerate(module, false, reinterpret_cast<void**>(functions), most);
}
SIMCUDA_API CUresult cuModuleGetGlobal_v2(CUdeviceptr* pointer, size_t* bytes, CUmodule module,
                                          const char* name) {
  return simcuda::FindGlobal(module, name, pointer, bytes);
}
SIMCUDA_API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**,
                                       unsigned int, CUlibraryOption*, void**, unsigned int) {
  return simcuda::LoadLibrary(library, image);
}
SIMCUDA_API CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option*, void**,
                                           unsigned int, CUlibraryOption*, void**, unsigned int) {
  std::vector<char> bytes;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return simcuda::ReadFile(path, &bytes) ? simcuda::LoadLibrary(library, bytes.data())
                                         : CUDA_ERROR_FILE_NOT_FOUND;
}
SIMCUDA_API CUresult cuLibraryUnload(CUlibrary library) { return simcuda::Unload(library); }
SIMCUDA_API CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return simcuda::Find(library, name, true, reinterpret_cast<void**>(kernel));
}
SIMCUDA_API CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary library) {
  return simcuda::Count(library, count);
}
SIMCUDA_API CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int most, CUlibrary library) {
  return simcuda::Enumerate(library, true, reinterpret_cast<void**>(kernels), most);
}
// A library's module holds the same kernels; one object serves as both.
SIMCUDA_API CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  if (simcuda::Module::FromHandle(library) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}
SIMCUDA_API CUresult cuLibraryGetGlobal(CUdeviceptr* pointer, size_t* bytes, CUlibrary library,
                                        const char* name) {
  return simcuda::FindGlobal(library, name, pointer, bytes);
}

SIMCUDA_API void* simcuda_module_global(const simcuda_launch* launch, const char* name, size_t* bytes) {
  auto* stream = simcuda::Stream::FromHandle(launch->stream);
  auto* module = simcuda::Module::FromHandle(launch->module);
  uint64_t address = 0;
  size_t size = 0;
  if (stream == nullptr || module == nullptr || name == nullptr ||
      module->FindGlobal(name, *stream->context(), &address, &size) != CUDA_SUCCESS) {
    return nullptr;
  }
  if (bytes != nullptr) *bytes = size;
  return reinterpret_cast<void*>(address);
}
SIMCUDA_API CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  const FunctionHandle* handle = FunctionFromHandle(kernel);
  if (handle == nullptr || !handle->is_kernel) return CUDA_ERROR_INVALID_HANDLE;
  return simcuda::Find(handle->module, handle->kernel->name.c_str(), false,
                       reinterpret_cast<void**>(function));
}
SIMCUDA_API CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  const FunctionHandle* handle = FunctionFromHandle(kernel);
  if (handle == nullptr || !handle->is_kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = reinterpret_cast<CUlibrary>(handle->module);
  return CUDA_SUCCESS;
}
