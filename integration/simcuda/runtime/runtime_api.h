// The public CUDA runtime API as this library exports it: NVIDIA's headers with default visibility, plus the
// launch and registration entry points that nvcc's host code calls (declared by NVIDIA only for nvcc itself).
// Owns no code. Every other file of this folder includes it instead of <cuda_runtime_api.h>; not_supported.cc
// includes neither.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_RUNTIME_API_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_RUNTIME_API_H_

#include <cstddef>
#include <cstdint>

#include <cuda.h>

#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>

extern "C" {
// Declarations of cuda_profiler_api.h, which no wheel of PyTorch's brings.
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

// Called by the constructors of a library that nvcc has compiled, when it is opened (kernel_registry.cc). A
// fat binary's handle is a pointer to our FatBinary; its device code is ignored.
void** __cudaRegisterFatBinary(void* fat_binary);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host_function, char* device_function,
                            const char* device_name, int thread_limit, uint3* tid, uint3* bid,
                            dim3* block_dim, dim3* grid_dim, int* warp_size);
// Globals of device code have no storage here: these two do nothing.
void __cudaRegisterVar(void** handle, char* host_variable, char* device_address, const char* device_name,
                       int external, size_t size, int constant, int global);
void __cudaRegisterManagedVar(void** handle, void** host_variable, char* device_address,
                              const char* device_name, int external, size_t size, int constant, int global);
char __cudaInitModule(void** handle);
// The calls that `kernel<<<grid, block, shared, stream>>>(...)` becomes: the configuration is pushed on the
// calling thread, the host stub pops it and launches. If a push returns other than 0, the caller skips its
// launch.
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream_st* stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream);
// Newer nvcc asks for the handle of a kernel once, and launches by that. The handle is a KernelEntry.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                               cudaStream_t stream);
}
#pragma GCC visibility pop

#if CUDART_VERSION / 1000 != SIMCUDA_RUNTIME_MAJOR
#error "The stand-in runtime of one CUDA major needs the headers of that major."
#endif

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_RUNTIME_API_H_
