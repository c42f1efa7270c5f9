#include "integration/simcuda/driver/machine/driver.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "integration/simcuda/driver/simcuda.h"

namespace simcuda {
namespace {

enum class Life { kUnborn, kAlive, kForked };

std::atomic<Life> g_life{Life::kUnborn};
std::mutex g_start_mutex;
Device* g_devices[SIMCUDA_DEVICES_MAX] = {};
int g_device_count = 0;

void OnFork() {
  if (g_life == Life::kAlive) g_life = Life::kForked;
}

}  // namespace

bool IsAlive() { return g_life.load(std::memory_order_acquire) == Life::kAlive; }
int DeviceCount() { return g_device_count; }

Device* FindDevice(int ordinal) {
  return ordinal >= 0 && ordinal < g_device_count ? g_devices[ordinal] : nullptr;
}

CUresult EnterDevice(CUdevice ordinal, Device** device) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  *device = FindDevice(ordinal);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult ComeAlive(CUresult (*start)()) {
  if (g_life == Life::kForked) return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard<std::mutex> lock(g_start_mutex);
  if (g_life == Life::kAlive) return CUDA_SUCCESS;
  if (const CUresult result = start(); result != CUDA_SUCCESS) return result;
  pthread_atfork(nullptr, nullptr, &OnFork);
  g_life.store(Life::kAlive, std::memory_order_release);
  return CUDA_SUCCESS;
}

void MakeDevices(const std::vector<int>& numbers, uint64_t memory_bytes) {
  g_device_count = 0;
  for (const int number : numbers) {
    g_devices[g_device_count] = new Device(g_device_count, number, memory_bytes);
    ++g_device_count;
  }
}

}  // namespace simcuda
