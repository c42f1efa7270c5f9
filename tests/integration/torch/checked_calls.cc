// A CUDA extension's host side: copies between two blocks, checked in the ways that libraries check. Opened by the tests after
// PyTorch and Spillway are at work, as extensions are. Each function answers with what was thrown: "TYPE|TEXT".

#include <c10/cuda/CUDAException.h>
#include <c10/util/Exception.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

// cuBLAS's header wants the CUDA C++ core headers, which the wheels of some PyTorch releases do not bring.
#if __has_include(<nv/target>)
#include <ATen/cuda/Exceptions.h>
#endif

#include <exception>
#include <string>

#include "integration/torch/compat_types.h"

namespace {

using CopyFn = CUresult (*)(CUdeviceptr, CUdeviceptr, size_t, CUstream);

cudaError_t Copy(void* to, const void* from, size_t bytes) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, nullptr);
}

CUresult DriverCopy(void* to, const void* from, size_t bytes) {
  static const auto copy =
      reinterpret_cast<CopyFn>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuMemcpyDtoDAsync_v2"));
  return copy(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes, nullptr);
}

template <typename Body>
const char* Thrown(Body body) {
  thread_local std::string answer;
  answer = "nothing|";
  try {
    body();
  } catch (const c10::OutOfMemoryError& error) {
    answer = std::string("OutOfMemoryError|") + error.what_without_backtrace();
#if SPILLWAY_TORCH_SINCE(8)
  } catch (const c10::AcceleratorError& error) {
    answer = std::string("AcceleratorError|") + error.what_without_backtrace();
#endif
  } catch (const c10::Error& error) {
    answer = std::string("Error|") + error.what_without_backtrace();
  } catch (const std::exception& error) {
    answer = std::string("exception|") + error.what();
  }
  return answer.c_str();
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// PyTorch's macro for runtime calls and launches.
EXPORTED const char* checked_by_pytorch(void* to, const void* from, size_t bytes) {
  return Thrown([&] { C10_CUDA_CHECK(Copy(to, from, bytes)); });
}

// The same after the fact, as behind a launch.
EXPORTED const char* checked_as_a_launch(void* to, const void* from, size_t bytes) {
  (void)Copy(to, from, bytes);
  return Thrown([&] { C10_CUDA_KERNEL_LAUNCH_CHECK(); });
}

// A check of the extension's own.
EXPORTED const char* checked_by_itself(void* to, const void* from, size_t bytes) {
  return Thrown([&] {
    const cudaError_t error = Copy(to, from, bytes);
    TORCH_CHECK(error == cudaSuccess, "copy failed: ", cudaGetErrorString(error));
  });
}

#ifdef TORCH_CUDABLAS_CHECK
// What PyTorch makes of a library that reports no more than that its launch failed.
EXPORTED const char* checked_as_cublas() {
  return Thrown([] { TORCH_CUDABLAS_CHECK(CUBLAS_STATUS_EXECUTION_FAILED); });
}
#endif

// The refusal goes unseen.
EXPORTED int unchecked(void* to, const void* from, size_t bytes) {
  return static_cast<int>(DriverCopy(to, from, bytes));
}

// A check that no refusal is behind.
EXPORTED const char* check_of(int error) {
  return Thrown([&] { C10_CUDA_CHECK(static_cast<cudaError_t>(error)); });
}
