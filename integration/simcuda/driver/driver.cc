#include "integration/simcuda/driver/driver.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "integration/simcuda/driver/address_space.h"
#include "integration/simcuda/driver/clock.h"
#include "integration/simcuda/driver/content_hash_twin.h"
#include "integration/simcuda/driver/faults.h"
#include "integration/simcuda/driver/log.h"
#include "integration/simcuda/driver/settings.h"
#include "integration/simcuda/driver/stats.h"
#include "integration/simcuda/driver/stream.h"

namespace simcuda {
namespace {

enum class Life { kUnborn, kAlive, kForked };

std::atomic<Life> g_life{Life::kUnborn};
std::mutex g_init_mutex;
Device* g_devices[SIMCUDA_DEVICES_MAX] = {};
int g_device_count = 0;

void OnFork() {
  if (g_life == Life::kAlive) g_life = Life::kForked;
}

// Work that is still queued uses what static destructors are about to take away; a GPU would be switched off here.
void DrainStreams() {
  constexpr int64_t kLongestNs = 10'000'000'000;
  const int64_t until = NowNs() + kLongestNs;
  ForEachStream([until](const Stream& stream) {
    while (!stream.IsDone(stream.enqueued()) && NowNs() < until) SleepUntil(NowNs() + 1'000'000);
  });
}

void OnExit() {
  if (!IsAlive()) return;
  DrainStreams();
  FlushLog();
  WriteStatsFile();
}

}  // namespace

bool IsAlive() { return g_life.load(std::memory_order_acquire) == Life::kAlive; }
int DeviceCount() { return g_device_count; }

Device* FindDevice(int ordinal) {
  return ordinal >= 0 && ordinal < g_device_count ? g_devices[ordinal] : nullptr;
}

CUresult Initialise() {
  if (g_life == Life::kAlive) return CUDA_SUCCESS;
  if (g_life == Life::kForked) return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard<std::mutex> lock(g_init_mutex);
  if (g_life == Life::kAlive) return CUDA_SUCCESS;
  if (!ReadEnvironment()) return CUDA_ERROR_INVALID_VALUE;
  if (!GetAddressSpace().Init()) {
    std::fprintf(stderr, "simcuda: cannot reserve addresses for the device's memory (ulimit -v?)\n");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Settings& settings = GetSettings();
  g_device_count = static_cast<int>(settings.devices.load());
  for (int i = 0; i < g_device_count; ++i) {
    g_devices[i] = new Device(i, static_cast<uint64_t>(settings.memory_bytes.load()));
  }
  RegisterContentHash();
  OpenLog(settings.log_file);
  InstallFaultHandler();
  pthread_atfork(nullptr, nullptr, &OnFork);
  std::atexit(&OnExit);
  g_life.store(Life::kAlive, std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace simcuda

SIMCUDA_API CUresult cuInit(unsigned int flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : simcuda::Initialise();
}

SIMCUDA_API CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Answers before cuInit as well, so the environment may not have been read.
  const char* set = std::getenv("SIMCUDA_DRIVER_VERSION");
  *version = set != nullptr && std::atoi(set) > 0 ? std::atoi(set)
                                                  : static_cast<int>(simcuda::GetSettings().driver_version);
  return CUDA_SUCCESS;
}
