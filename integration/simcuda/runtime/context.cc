// Initialization and contexts: see context.h.
#include "integration/simcuda/runtime/context.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace simcuda {
namespace {

constexpr int kMaxDevices = 64;
constexpr int kNotTried = -1;

std::mutex init_mu;
// The outcome of cuInit, or kNotTried. Stored under `init_mu` after the driver is ready; pairs with the load in
// InitializeDriver.
std::atomic<int> init_outcome{kNotTried};
// Set in a child that was forked after initialization; pairs with the load in InitializeDriver.
std::atomic<bool> forked_child{false};
// Retained primary contexts; a store under `init_mu` pairs with the loads in PrimaryContext.
std::atomic<CUcontext> primary_contexts[kMaxDevices];

thread_local int thread_device = 0;

void MarkForkedChild() { forked_child.store(true); }

cudaError_t InitializeOnce() {
  std::lock_guard<std::mutex> lock(init_mu);
  const int known = init_outcome.load(std::memory_order_acquire);
  if (known != kNotTried) return static_cast<cudaError_t>(known);
  const DriverTable* driver = LoadedDriver();
  cudaError_t outcome = cudaErrorInsufficientDriver;
  if (driver != nullptr) {
    outcome = driver->Init.present() ? ToRuntimeError(driver->Init(0)) : cudaErrorInsufficientDriver;
  }
  // Only a process that has used the driver has anything for its children to be wary of.
  if (outcome == cudaSuccess) pthread_atfork(nullptr, nullptr, MarkForkedChild);
  init_outcome.store(outcome, std::memory_order_release);
  return outcome;
}

}  // namespace

cudaError_t InitializeDriver(const DriverTable** driver) {
  if (forked_child.load(std::memory_order_relaxed)) return cudaErrorInitializationError;
  int outcome = init_outcome.load(std::memory_order_acquire);
  if (outcome == kNotTried) outcome = InitializeOnce();
  if (outcome == cudaSuccess) *driver = LoadedDriver();
  return static_cast<cudaError_t>(outcome);
}

cudaError_t PrimaryContext(const DriverTable& driver, int device, CUcontext* context) {
  int count = 0;
  const cudaError_t counted = ToRuntimeError(driver.DeviceGetCount(&count));
  if (counted != cudaSuccess) return counted;
  if (device < 0 || device >= count || device >= kMaxDevices) return cudaErrorInvalidDevice;
  *context = primary_contexts[device].load(std::memory_order_acquire);
  if (*context != nullptr) return cudaSuccess;

  std::lock_guard<std::mutex> lock(init_mu);
  *context = primary_contexts[device].load(std::memory_order_acquire);
  if (*context != nullptr) return cudaSuccess;
  CUdevice handle = 0;
  CUresult result = driver.DeviceGet(&handle, device);
  if (result == CUDA_SUCCESS) result = driver.DevicePrimaryCtxRetain(context, handle);
  if (result == CUDA_SUCCESS) primary_contexts[device].store(*context, std::memory_order_release);
  return ToRuntimeError(result);
}

void ForgetPrimaryContext(int device) {
  if (device >= 0 && device < kMaxDevices) primary_contexts[device].store(nullptr);
}

cudaError_t BindDevice(const DriverTable& driver, int device) {
  CUcontext context = nullptr;
  cudaError_t error = PrimaryContext(driver, device, &context);
  if (error == cudaSuccess) error = ToRuntimeError(driver.CtxSetCurrent(context));
  if (error == cudaSuccess) thread_device = device;
  return error;
}

cudaError_t EnsureContext(const DriverTable** driver) {
  const cudaError_t error = InitializeDriver(driver);
  if (error != cudaSuccess) return error;
  CUcontext current = nullptr;
  const CUresult result = (*driver)->CtxGetCurrent(&current);
  if (result != CUDA_SUCCESS) return ToRuntimeError(result);
  return current != nullptr ? cudaSuccess : BindDevice(**driver, thread_device);
}

int ThreadDevice() { return thread_device; }

}  // namespace simcuda
