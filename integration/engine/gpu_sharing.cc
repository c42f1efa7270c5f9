#include "integration/engine/gpu_sharing.h"

#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "io/os/errno.h"
#include "io/store/node_share.h"

namespace spillway::integration {
namespace {

constexpr auto kScanInterval = std::chrono::milliseconds(200);
constexpr auto kThreadEnd = std::chrono::milliseconds(100);

}  // namespace

GpuSharing::GpuSharing(const Settings* settings, const allocator::CudaDriver* driver, os::WaitList* waits,
                       JobPause* pause)
    : settings_(settings), driver_(driver), waits_(waits), pause_(pause) {}

absl::StatusOr<DeviceShare*> GpuSharing::AddDevice(int device, CUcontext context, uint64_t total_bytes,
                                                   uint64_t reserve_bytes) {
  if (settings_->share != ShareWhat::kGpu || settings_->Observes()) return nullptr;
  CUdevice handle = 0;
  CUuuid uuid = {};
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuDeviceGet(&handle, device), "cuDeviceGet"));
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuDeviceGetUuid_v2(&uuid, handle), "cuDeviceGetUuid"));
  DeviceShare::Options options;
  options.directories = io::HostMemoryShareDirectories();
  options.account =
      absl::StrCat("GPU ", absl::BytesToHexString({uuid.bytes, sizeof(uuid.bytes)}), " of user ", ::getuid());
  options.total_bytes = total_bytes;
  options.reserve_bytes = reserve_bytes;
  options.idle = settings_->share_idle;
  options.free_bytes = [driver = driver_, context]() -> std::optional<uint64_t> {
    const allocator::ScopedContext scope(driver, context);
    size_t free = 0, total = 0;
    if (driver->cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return std::nullopt;
    return free;
  };
  options.waits = waits_;
  options.on_left = [device, pause = pause_](int64_t began, const allocator::PauseStats& stats) {
    pause->RecordIdle(device, began, stats);
  };
  options.on_back = [device, pause = pause_] { pause->RecordIdleEnd(device); };
  auto* const share = new DeviceShare(std::move(options));
  shares_[static_cast<size_t>(device)].store(share, std::memory_order_release);
  if (!thread_.joinable()) SPILLWAY_RETURN_IF_ERROR(thread_.Start("spill-share", [this] { Loop(); }));
  return share;
}

void GpuSharing::Loop() {
  for (;;) {
    {
      const os::MutexLock lock(&mu_);
      if (!stop_) changed_.WaitFor(&mu_, kScanInterval);
      if (stop_) return;
    }
    ForEach([](DeviceShare* share) { share->Poll(); });
  }
}

void GpuSharing::Stop() {
  {
    const os::MutexLock lock(&mu_);
    if (std::exchange(stop_, true)) return;
    changed_.NotifyAll();
  }
  ForEach([](DeviceShare* share) { share->Stop(); });
  thread_.JoinFor(kThreadEnd);  // a thread that moves blocks ends with the device
}

void GpuSharing::AbandonAfterFork() {
  thread_.Abandon();
  ForEach([](DeviceShare* share) { share->AbandonAfterFork(); });
}

}  // namespace spillway::integration
