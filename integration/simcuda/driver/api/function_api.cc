// Driver functions: queries of a function or kernel.
#include <algorithm>

#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/kernels/kernel.h"
#include "integration/simcuda/driver/machine/driver.h"

namespace simcuda {
namespace {

// Most queries take either a CUfunction or a CUkernel, not both. `code`: the error for a handle of another
// kind.
CUresult EnterFunction(const void* handle, HandleKind kind, FunctionHandle** function,
                       CUresult code = CUDA_ERROR_INVALID_HANDLE) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  *function = FunctionFromHandle(handle, kind);
  if (*function != nullptr) return CUDA_SUCCESS;
  return BadHandle(handle, kind == HandleKind::kKernel ? "a CUkernel" : "a CUfunction", code);
}

// CUDA's documentation of these three has INVALID_VALUE alone, also for null and for an object of zeros.
constexpr CUresult kBadQuery = CUDA_ERROR_INVALID_VALUE;

CUresult GetParameter(const void* handle, HandleKind kind, size_t index, size_t* offset, size_t* size) {
  FunctionHandle* function = nullptr;
  if (CUresult result = EnterFunction(handle, kind, &function, kBadQuery); result != CUDA_SUCCESS)
    return result;
  if (offset == nullptr || index >= function->kernel->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  if (Context* const context = CurrentContext(); context != nullptr) {
    if (CUresult result = function->LoadCode(&context->device()); result != CUDA_SUCCESS) return result;
  }
  *offset = function->kernel->parameters[index].offset;
  if (size != nullptr) *size = function->kernel->parameters[index].size;
  return CUDA_SUCCESS;
}

CUresult GetParameterCount(const void* handle, HandleKind kind, size_t* count) {
  FunctionHandle* function = nullptr;
  if (CUresult result = EnterFunction(handle, kind, &function, kBadQuery); result != CUDA_SUCCESS)
    return result;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = function->kernel->parameters.size();
  return CUDA_SUCCESS;
}

CUresult GetName(const void* handle, HandleKind kind, const char** name) {
  FunctionHandle* function = nullptr;
  if (CUresult result = EnterFunction(handle, kind, &function, kBadQuery); result != CUDA_SUCCESS)
    return result;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult GetAttribute(int* value, CUfunction_attribute attribute, const void* handle, HandleKind kind) {
  FunctionHandle* function = nullptr;
  if (CUresult result = EnterFunction(handle, kind, &function); result != CUDA_SUCCESS) return result;
  if (value == nullptr || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->dynamic_shared_bytes_max; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult SetAttribute(CUfunction_attribute attribute, int value, const void* handle, HandleKind kind) {
  FunctionHandle* function = nullptr;
  if (CUresult result = EnterFunction(handle, kind, &function); result != CUDA_SUCCESS) return result;
  if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  constexpr int kMaxSharedBytes = 227 << 10;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value > kMaxSharedBytes) return CUDA_ERROR_INVALID_VALUE;
    function->dynamic_shared_bytes_max = value;
  }
  return CUDA_SUCCESS;
}

// Occupancy is asked of either.
CUresult EnterEither(const void* handle, FunctionHandle** function) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  *function = FunctionOrKernel(handle);
  if (*function != nullptr) return CUDA_SUCCESS;
  return BadHandle(handle, "a CUfunction or a CUkernel", CUDA_ERROR_INVALID_HANDLE);
}

CUresult ActiveBlocks(int* blocks, const void* handle, int block_size) {
  FunctionHandle* function = nullptr;
  if (CUresult result = EnterEither(handle, &function); result != CUDA_SUCCESS) return result;
  if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  constexpr int kThreadsPerProcessor = 2048;
  constexpr int kBlocksPerProcessor = 32;
  *blocks = block_size > 1024 ? 0 : std::min(kBlocksPerProcessor, kThreadsPerProcessor / block_size);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

using simcuda::FunctionHandle;
using simcuda::HandleKind;

SIMCUDA_API CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  SIMCUDA_FAIL_POINT(cuFuncGetParamInfo);
  return simcuda::GetParameter(function, HandleKind::kFunction, index, offset, size);
}
SIMCUDA_API CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  SIMCUDA_FAIL_POINT(cuKernelGetParamInfo);
  return simcuda::GetParameter(kernel, HandleKind::kKernel, index, offset, size);
}
// Both are of toolkit 13.2, and declared here, since older headers lack them.
SIMCUDA_API CUresult cuFuncGetParamCount(CUfunction function, size_t* count) {
  return simcuda::GetParameterCount(function, HandleKind::kFunction, count);
}
SIMCUDA_API CUresult cuKernelGetParamCount(CUkernel kernel, size_t* count) {
  return simcuda::GetParameterCount(kernel, HandleKind::kKernel, count);
}
SIMCUDA_API CUresult cuFuncGetName(const char** name, CUfunction function) {
  SIMCUDA_FAIL_POINT(cuFuncGetName);
  return simcuda::GetName(function, HandleKind::kFunction, name);
}
SIMCUDA_API CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  SIMCUDA_FAIL_POINT(cuKernelGetName);
  return simcuda::GetName(kernel, HandleKind::kKernel, name);
}
SIMCUDA_API CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  SIMCUDA_FAIL_POINT(cuFuncGetModule);
  FunctionHandle* function = nullptr;
  if (CUresult result = simcuda::EnterFunction(handle, HandleKind::kFunction, &function);
      result != CUDA_SUCCESS)
    return result;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // A function that came from registration belongs to no module.
  if (function->module == nullptr) return CUDA_ERROR_NOT_FOUND;
  *module = reinterpret_cast<CUmodule>(function->module);
  return CUDA_SUCCESS;
}
SIMCUDA_API CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  SIMCUDA_FAIL_POINT(cuFuncGetAttribute);
  return simcuda::GetAttribute(value, attribute, function, HandleKind::kFunction);
}
SIMCUDA_API CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                                          CUdevice) {
  return simcuda::GetAttribute(value, attribute, kernel, HandleKind::kKernel);
}
SIMCUDA_API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return simcuda::SetAttribute(attribute, value, function, HandleKind::kFunction);
}
SIMCUDA_API CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                          CUdevice) {
  return simcuda::SetAttribute(attribute, value, kernel, HandleKind::kKernel);
}
SIMCUDA_API CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  FunctionHandle* function = nullptr;
  return simcuda::EnterFunction(handle, HandleKind::kFunction, &function);
}
SIMCUDA_API CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache, CUdevice) {
  FunctionHandle* function = nullptr;
  return simcuda::EnterFunction(handle, HandleKind::kKernel, &function);
}
SIMCUDA_API CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig) {
  FunctionHandle* function = nullptr;
  return simcuda::EnterFunction(handle, HandleKind::kFunction, &function);
}
SIMCUDA_API CUresult cuFuncLoad(CUfunction handle) {
  FunctionHandle* function = nullptr;
  return simcuda::EnterFunction(handle, HandleKind::kFunction, &function);
}
SIMCUDA_API CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  FunctionHandle* function = nullptr;
  if (CUresult result = simcuda::EnterFunction(handle, HandleKind::kFunction, &function);
      result != CUDA_SUCCESS)
    return result;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                                 int block_size, size_t) {
  return simcuda::ActiveBlocks(blocks, function, block_size);
}
SIMCUDA_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                                          int block_size, size_t,
                                                                          unsigned int) {
  return simcuda::ActiveBlocks(blocks, function, block_size);
}
SIMCUDA_API CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function,
                                                      CUoccupancyB2DSize, size_t, int limit) {
  if (grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  constexpr int kProcessors = 132;
  *block = limit > 0 ? std::min(limit, 1024) : 1024;
  int blocks = 0;
  const CUresult result = simcuda::ActiveBlocks(&blocks, function, *block);
  *grid = blocks * kProcessors;
  return result;
}
SIMCUDA_API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function,
                                                               CUoccupancyB2DSize shared, size_t bytes,
                                                               int limit, unsigned int) {
  return cuOccupancyMaxPotentialBlockSize(grid, block, function, shared, bytes, limit);
}
SIMCUDA_API CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int, int) {
  FunctionHandle* function = nullptr;
  if (CUresult result = simcuda::EnterEither(handle, &function); result != CUDA_SUCCESS) return result;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = static_cast<size_t>(function->dynamic_shared_bytes_max);
  return CUDA_SUCCESS;
}
