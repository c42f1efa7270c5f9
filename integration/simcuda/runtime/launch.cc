// Launches of registered kernels, their attributes and occupancy. A kernel is named by its host stub, by the handle
// that __cudaGetKernel gave out, or by a driver kernel of cudaLibraryGetKernel; all become one cuLaunchKernel (or Ex,
// or Cooperative) with the caller's own parameter array.
#include <algorithm>

#include "integration/simcuda/runtime/context.h"
#include "integration/simcuda/runtime/driver_kernels.h"
#include "integration/simcuda/runtime/kernel_registry.h"
#include "integration/simcuda/runtime/twins.h"

using simcuda::DriverTable;
using simcuda::Record;
using simcuda::WithContext;
using simcuda::WithDriver;

namespace {

// Launch configurations between the <<<>>> of a caller and the stub that it calls. Arguments of a launch may
// themselves launch, so it is a small stack.
struct CallConfiguration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  cudaStream_t stream;
};

constexpr int kDeepestCall = 8;

struct CallStack {
  int depth;
  alignas(CallConfiguration) unsigned char bytes[kDeepestCall * sizeof(CallConfiguration)];

  CallConfiguration& at(int index) { return reinterpret_cast<CallConfiguration*>(bytes)[index]; }
};

thread_local CallStack call_stack;

// Null when `kernel` is neither registered nor the driver's.
CUfunction Resolve(const DriverTable& driver, const void* kernel) {
  simcuda::KernelEntry* entry = simcuda::KernelRegistry::Get().Find(kernel);
  if (entry != nullptr) return simcuda::FunctionOf(driver, entry);
  // The driver takes its kernel handles in place of functions.
  return simcuda::IsDriverKernel(kernel) ? reinterpret_cast<CUfunction>(const_cast<void*>(kernel)) : nullptr;
}

bool IsKnownKernel(const void* kernel) {
  return simcuda::KernelRegistry::Get().Find(kernel) != nullptr || simcuda::IsDriverKernel(kernel);
}

cudaError_t Launch(const void* kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                   cudaStream_t stream) {
  return WithContext([&](const DriverTable& driver) {
    const CUfunction function = Resolve(driver, kernel);
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    return simcuda::ToRuntimeError(driver.LaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y,
                                                       block.z, static_cast<unsigned>(shared_bytes), stream,
                                                       args, nullptr));
  });
}

int Attribute(const DriverTable& driver, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  driver.DeviceGetAttribute(&value, attribute, device);
  return value;
}

// Fills in the attributes of a plain kernel of this device: no static shared or local memory, 32 registers.
void FillPlainAttributes(const DriverTable& driver, CUdevice device, cudaFuncAttributes* attributes) {
  *attributes = cudaFuncAttributes{};
  const int version = 10 * Attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                      Attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  attributes->maxThreadsPerBlock = Attribute(driver, device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  attributes->numRegs = 32;
  attributes->ptxVersion = version;
  attributes->binaryVersion = version;
  attributes->maxDynamicSharedSizeBytes =
      Attribute(driver, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  attributes->preferredShmemCarveout = -1;
}

// Blocks of such a kernel that fit one multiprocessor.
int PlainOccupancy(const DriverTable& driver, CUdevice device, int block_size, size_t shared_bytes) {
  const int warp = std::max(1, Attribute(driver, device, CU_DEVICE_ATTRIBUTE_WARP_SIZE));
  const int threads = (block_size + warp - 1) / warp * warp;
  int blocks = Attribute(driver, device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / threads;
  const int most = Attribute(driver, device, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  if (most > 0) blocks = std::min(blocks, most);
  const int shared = Attribute(driver, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  if (shared_bytes > 0 && shared > 0) {
    blocks = std::min(blocks, static_cast<int>(static_cast<size_t>(shared) / shared_bytes));
  }
  return blocks;
}

}  // namespace

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream_st* stream) {
  if (call_stack.depth == kDeepestCall) {
    Record(cudaErrorInvalidConfiguration);
    return 1;  // the caller then skips its launch
  }
  call_stack.at(call_stack.depth++) = CallConfiguration{grid, block, shared_bytes, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  if (call_stack.depth == 0) return Record(cudaErrorMissingConfiguration);
  const CallConfiguration& call = call_stack.at(--call_stack.depth);
  *grid = call.grid;
  *block = call.block;
  *shared_bytes = call.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = call.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  if (kernel == nullptr) return Record(cudaErrorInvalidValue);
  *kernel = reinterpret_cast<cudaKernel_t>(simcuda::KernelRegistry::Get().Find(host_function));
  return *kernel != nullptr ? cudaSuccess : Record(cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  return __cudaGetKernel(kernel, host_function);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* host_function) {
  if (function == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext([&](const DriverTable& driver) {
    // The runtime launches a kernel of the driver; a cudaFunction_t is a function, of the current context.
    const CUfunction kernel = Resolve(driver, host_function);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    return simcuda::ToRuntimeError(driver.KernelGetFunction(function, reinterpret_cast<CUkernel>(kernel)));
  });
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                               cudaStream_t stream) {
  return Launch(kernel, grid, block, args, shared_bytes, stream);
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                             cudaStream_t stream) {
  return Launch(kernel, grid, block, args, shared_bytes, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** args,
                                        size_t shared_bytes, cudaStream_t stream) {
  return WithContext([&](const DriverTable& driver) {
    const CUfunction function = Resolve(driver, kernel);
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    return simcuda::ToRuntimeError(
        driver.LaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                       static_cast<unsigned>(shared_bytes), stream, args));
  });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** args) {
  static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));
  if (config == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext([&](const DriverTable& driver) {
    const CUfunction function = Resolve(driver, kernel);
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    CUlaunchConfig launch{};
    launch.gridDimX = config->gridDim.x;
    launch.gridDimY = config->gridDim.y;
    launch.gridDimZ = config->gridDim.z;
    launch.blockDimX = config->blockDim.x;
    launch.blockDimY = config->blockDim.y;
    launch.blockDimZ = config->blockDim.z;
    launch.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
    launch.hStream = config->stream;
    launch.attrs = reinterpret_cast<CUlaunchAttribute*>(config->attrs);
    launch.numAttrs = config->numAttrs;
    return simcuda::ToRuntimeError(driver.LaunchKernelEx(&launch, function, args, nullptr));
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (attributes == nullptr) return Record(cudaErrorInvalidValue);
  return WithContext([&](const DriverTable& driver) {
    if (!IsKnownKernel(kernel)) return cudaErrorInvalidDeviceFunction;
    CUdevice device = 0;
    const CUresult result = driver.CtxGetDevice(&device);
    if (result == CUDA_SUCCESS) FillPlainAttributes(driver, device, attributes);
    return simcuda::ToRuntimeError(result);
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int) {
  // Shared memory and carve-out mean nothing to a host function.
  return WithContext([&](const DriverTable&) {
    return IsKnownKernel(kernel) ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int block_size,
                                                          size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, block_size, shared_bytes,
                                                                cudaOccupancyDefault);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel,
                                                                   int block_size, size_t shared_bytes,
                                                                   unsigned int) {
  if (blocks == nullptr || block_size <= 0) return Record(cudaErrorInvalidValue);
  return WithContext([&](const DriverTable& driver) {
    if (!IsKnownKernel(kernel)) return cudaErrorInvalidDeviceFunction;
    CUdevice device = 0;
    const CUresult result = driver.CtxGetDevice(&device);
    if (result == CUDA_SUCCESS) *blocks = PlainOccupancy(driver, device, block_size, shared_bytes);
    return simcuda::ToRuntimeError(result);
  });
}
