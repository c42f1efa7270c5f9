// Handles for other processes, and the profiler's switches: handed to the driver as they are.
#include <cstring>

#include "integration/simcuda/runtime/context.h"

using simcuda::DriverTable;
using simcuda::Record;
using simcuda::WithContext;

namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle));
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));

CUresult WithoutProfiler(CUresult result) {
  return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;
}

}  // namespace

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* device_pointer) {
  return WithContext([&](const DriverTable& driver) {
    return driver.IpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle),
                                  reinterpret_cast<CUdeviceptr>(device_pointer));
  });
}

cudaError_t cudaIpcOpenMemHandle(void** device_pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
  return WithContext([&](const DriverTable& driver) {
    CUipcMemHandle copy;
    std::memcpy(&copy, &handle, sizeof(copy));
    return driver.IpcOpenMemHandle(reinterpret_cast<CUdeviceptr*>(device_pointer), copy, flags);
  });
}

cudaError_t cudaIpcCloseMemHandle(void* device_pointer) {
  return WithContext([&](const DriverTable& driver) {
    return driver.IpcCloseMemHandle(reinterpret_cast<CUdeviceptr>(device_pointer));
  });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return WithContext([&](const DriverTable& driver) {
    return driver.IpcGetEventHandle(reinterpret_cast<CUipcEventHandle*>(handle), event);
  });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return WithContext([&](const DriverTable& driver) {
    CUipcEventHandle copy;
    std::memcpy(&copy, &handle, sizeof(copy));
    return driver.IpcOpenEventHandle(event, copy);
  });
}

// A missing profiler is no error.
cudaError_t cudaProfilerStart() {
  return WithContext([](const DriverTable& driver) { return WithoutProfiler(driver.ProfilerStart()); });
}

cudaError_t cudaProfilerStop() {
  return WithContext([](const DriverTable& driver) { return WithoutProfiler(driver.ProfilerStop()); });
}
