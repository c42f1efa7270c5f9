// The start and the end of the driver: cuInit makes everything, an exit handler lets queued work end and
// writes files.
#include <cstdio>
#include <cstdlib>

#include "integration/simcuda/driver/copies/memory_operation.h"
#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/core/log.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/execution/faults.h"
#include "integration/simcuda/driver/execution/stream.h"
#include "integration/simcuda/driver/kernels/content_hash_twin.h"
#include "integration/simcuda/driver/machine/device_rights.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/machine/hardware_time.h"
#include "integration/simcuda/driver/machine/machine_memory.h"
#include "integration/simcuda/driver/machine/stats.h"
#include "integration/simcuda/driver/machine/visible_devices.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

// Waits for queued work, which uses objects that static destructors are about to destroy; a GPU would be
// switched off here. A wait for a word is given up after a second if only such waits are left: nobody is
// there to write the words.
void DrainStreams() {
  constexpr int64_t kLongestNs = 10'000'000'000;
  constexpr int64_t kLongestForWordsNs = 1'000'000'000;
  const int64_t until = NowNs() + kLongestNs;
  uint64_t queued = 0, done = 0, done_before = 0;
  int64_t moved_at = NowNs();
  do {
    queued = done = 0;
    ForEachStream([&](const Stream& stream) {
      done += stream.completed();  // first: the other only grows
      queued += stream.enqueued();
    });
    if (done == queued) return;
    const int64_t now = NowNs();
    if (done != done_before) moved_at = now;
    done_before = done;
    if (WordsWaitedFor() != 0 && now - moved_at > kLongestForWordsNs) {
      std::fprintf(stderr,
                   "simcuda: the process ends while a stream waits for a word that nobody has written\n");
      return;
    }
    SleepUntil(now + 1'000'000);
  } while (NowNs() < until);
}

void OnExit() {
  if (!IsAlive()) return;
  DrainStreams();
  FlushLog();
  WriteStatsFile();
}

CUresult Start() {
  if (!ReadEnvironment() || !ApplyHardware()) return CUDA_ERROR_INVALID_VALUE;
  if (!TakeDeviceKey()) return CUDA_ERROR_NOT_SUPPORTED;
  const Settings& settings = GetSettings();
  if (!EnterMachine(settings.machine_file)) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<int> seen =
      VisibleDevices(std::getenv("CUDA_VISIBLE_DEVICES"), static_cast<int>(settings.devices.load()));
  if (seen.empty()) return CUDA_ERROR_NO_DEVICE;
  if (!GetAddressSpace().Init()) {
    std::fprintf(stderr, "simcuda: cannot reserve addresses for the device's memory (ulimit -v?)\n");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  MakeDevices(seen, static_cast<uint64_t>(settings.memory_bytes.load()));
  RegisterContentHash();
  OpenLog(settings.log_file);
  InstallFaultHandler();
  std::atexit(&OnExit);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

SIMCUDA_API CUresult cuInit(unsigned int flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : simcuda::ComeAlive(&simcuda::Start);
}

SIMCUDA_API CUresult cuDriverGetVersion(int* version) {
  SIMCUDA_FAIL_POINT(cuDriverGetVersion);
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Answers before cuInit as well, so the environment may not have been read.
  const char* set = std::getenv("SIMCUDA_DRIVER_VERSION");
  *version = set != nullptr && std::atoi(set) > 0 ? std::atoi(set)
                                                  : static_cast<int>(simcuda::GetSettings().driver_version);
  return CUDA_SUCCESS;
}
