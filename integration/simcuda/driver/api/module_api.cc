// Driver functions: modules and libraries.
#include <cstdio>
#include <memory>
#include <vector>

#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/kernels/module.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/machine/hardware_time.h"

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
  if (CurrentStreamOfThread() != nullptr) return;  // a host function would wait for itself
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

// The live module, or library, of a handle.
CUresult EnterModule(const void* handle, HandleKind kind, Module** module) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  *module = LiveObject<Module>(handle, kind);
  if (*module != nullptr) return CUDA_SUCCESS;
  return BadHandle(handle, kind == HandleKind::kModule ? "a CUmodule" : "a CUlibrary",
                   CUDA_ERROR_INVALID_HANDLE);
}

CUresult Find(const void* handle, HandleKind kind, const char* name, void** function) {
  Module* module = nullptr;
  if (CUresult result = EnterModule(handle, kind, &module); result != CUDA_SUCCESS) return result;
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FunctionHandle* found = nullptr;
  CUresult result = module->Find(name, &found);
  Context* const context = module->context != nullptr ? module->context : CurrentContext();
  if (result == CUDA_SUCCESS && context != nullptr) result = found->LoadCode(&context->device());
  if (result == CUDA_SUCCESS) *function = found;
  return result;
}

// Either output may be null.
CUresult FindGlobal(const void* handle, HandleKind kind, const char* name, CUdeviceptr* pointer,
                    size_t* bytes) {
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  Module* module = nullptr;
  if (CUresult result = EnterModule(handle, kind, &module); result != CUDA_SUCCESS) return result;
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
CUresult Enumerate(const void* handle, HandleKind kind, void** functions, unsigned int most) {
  Module* module = nullptr;
  if (CUresult result = EnterModule(handle, kind, &module); result != CUDA_SUCCESS) return result;
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < most && i < module->kernels.size(); ++i) {
    const CUresult result = Find(handle, kind, module->kernels[i].name.c_str(), &functions[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Count(const void* handle, HandleKind kind, unsigned int* count) {
  Module* module = nullptr;
  if (CUresult result = EnterModule(handle, kind, &module); result != CUDA_SUCCESS) return result;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned int>(module->kernels.size());
  return CUDA_SUCCESS;
}

CUresult Unload(const void* handle, HandleKind kind) {
  if (CUresult result = EnterAny(); result != CUDA_SUCCESS) return result;
  Module* module = nullptr;
  if (CUresult result = EnterModule(handle, kind, &module); result != CUDA_SUCCESS) return result;
  if (module->library != nullptr)
    return BadHandle(handle, "a CUmodule that was loaded", "it is the module of a CUlibrary",
                     CUDA_ERROR_INVALID_HANDLE);
  module->Unload();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

using simcuda::Context;
using simcuda::FunctionHandle;
using simcuda::HandleKind;
using simcuda::Module;

SIMCUDA_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  SIMCUDA_FAIL_POINT(cuModuleLoadData);
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
SIMCUDA_API CUresult cuModuleUnload(CUmodule module) {
  SIMCUDA_FAIL_POINT(cuModuleUnload);
  return simcuda::Unload(module, HandleKind::kModule);
}
SIMCUDA_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  SIMCUDA_FAIL_POINT(cuModuleGetFunction);
  return simcuda::Find(module, HandleKind::kModule, name, reinterpret_cast<void**>(function));
}
SIMCUDA_API CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule module) {
  SIMCUDA_FAIL_POINT(cuModuleGetFunctionCount);
  return simcuda::Count(module, HandleKind::kModule, count);
}
SIMCUDA_API CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int most, CUmodule module) {
  return simcuda::Enumerate(module, HandleKind::kModule, reinterpret_cast<void**>(functions), most);
}
SIMCUDA_API CUresult cuModuleGetGlobal_v2(CUdeviceptr* pointer, size_t* bytes, CUmodule module,
                                          const char* name) {
  return simcuda::FindGlobal(module, HandleKind::kModule, name, pointer, bytes);
}
SIMCUDA_API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  SIMCUDA_FAIL_POINT(cuModuleGetLoadingMode);
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**,
                                       unsigned int, CUlibraryOption*, void**, unsigned int) {
  SIMCUDA_FAIL_POINT(cuLibraryLoadData);
  return simcuda::LoadLibrary(library, image);
}
SIMCUDA_API CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option*, void**,
                                           unsigned int, CUlibraryOption*, void**, unsigned int) {
  std::vector<char> bytes;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return simcuda::ReadFile(path, &bytes) ? simcuda::LoadLibrary(library, bytes.data())
                                         : CUDA_ERROR_FILE_NOT_FOUND;
}
SIMCUDA_API CUresult cuLibraryUnload(CUlibrary library) {
  return simcuda::Unload(library, HandleKind::kLibrary);
}
SIMCUDA_API CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  SIMCUDA_FAIL_POINT(cuLibraryGetKernel);
  return simcuda::Find(library, HandleKind::kLibrary, name, reinterpret_cast<void**>(kernel));
}
SIMCUDA_API CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary library) {
  SIMCUDA_FAIL_POINT(cuLibraryGetKernelCount);
  return simcuda::Count(library, HandleKind::kLibrary, count);
}
SIMCUDA_API CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int most, CUlibrary library) {
  return simcuda::Enumerate(library, HandleKind::kLibrary, reinterpret_cast<void**>(kernels), most);
}
SIMCUDA_API CUresult cuLibraryGetModule(CUmodule* module, CUlibrary handle) {
  SIMCUDA_FAIL_POINT(cuLibraryGetModule);
  Context* context = nullptr;
  Module* library = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (CUresult result = simcuda::EnterModule(handle, HandleKind::kLibrary, &library); result != CUDA_SUCCESS)
    return result;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(library->ModuleIn(*context));
  return CUDA_SUCCESS;
}
SIMCUDA_API CUresult cuLibraryGetGlobal(CUdeviceptr* pointer, size_t* bytes, CUlibrary library,
                                        const char* name) {
  return simcuda::FindGlobal(library, HandleKind::kLibrary, name, pointer, bytes);
}

SIMCUDA_API void* simcuda_module_global(const simcuda_launch* launch, const char* name, size_t* bytes) {
  auto* stream = simcuda::Stream::FromHandle(launch->stream);
  auto* module = simcuda::LiveObject<Module>(launch->module, HandleKind::kModule);
  if (module == nullptr) module = simcuda::LiveObject<Module>(launch->module, HandleKind::kLibrary);
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
  SIMCUDA_FAIL_POINT(cuKernelGetFunction);
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  const FunctionHandle* handle = simcuda::FunctionFromHandle(kernel, HandleKind::kKernel);
  if (handle == nullptr) return simcuda::BadHandle(kernel, "a CUkernel", CUDA_ERROR_INVALID_HANDLE);
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FunctionHandle* found = nullptr;
  const CUresult result = handle->module->ModuleIn(*context)->Find(handle->kernel->name, &found);
  if (result == CUDA_SUCCESS) *function = reinterpret_cast<CUfunction>(found);
  return result;
}
SIMCUDA_API CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  SIMCUDA_FAIL_POINT(cuKernelGetLibrary);
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  const FunctionHandle* handle = simcuda::FunctionFromHandle(kernel, HandleKind::kKernel);
  if (handle == nullptr) return simcuda::BadHandle(kernel, "a CUkernel", CUDA_ERROR_INVALID_HANDLE);
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = reinterpret_cast<CUlibrary>(handle->module);
  return CUDA_SUCCESS;
}
