#include "integration/engine/tiers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "integration/engine/bounded_call.h"
#include "integration/engine/machine.h"
#include "integration/engine/node_sharing.h"
#include "integration/engine/sizing.h"
#include "integration/report/wear.h"
#include "integration/settings/environment.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

// The address space for spilled bytes if it is not known how much the disk will hold.
constexpr uint64_t kDefaultSpillCapacity = uint64_t{1} << 40;

io::SpillStoreOptions StoreOptions(const Settings& settings, const std::vector<DirectoryEntry>& directories) {
  io::SpillStoreOptions store;
  for (const DirectoryEntry& entry : directories)
    store.directories.push_back(SharedDirectory(settings, entry));
  if (settings.disk_reserve) store.disk_reserve_bytes = std::max<uint64_t>(1, settings.disk_reserve->bytes);
  store.checksum = settings.checksum ? io::ChecksumMode::kOn : io::ChecksumMode::kOff;
  store.models = settings.io_model;
  store.faults = settings.io_faults;
  return store;
}

std::vector<DirectoryEntry> DirectoriesOf(const Settings& settings) {
  if (settings.dirs) return *settings.OwnDirectories();
  const std::string path = FirstDiskDirectory({"/var/tmp", EnvironmentValue("TMPDIR"), "/tmp"});
  if (path.empty()) return {};
  return {{path, 0}};
}

}  // namespace

absl::Status Tiers::Start(CUcontext context, uint64_t device_bytes) {
  if (disk_ == nullptr) SPILLWAY_RETURN_IF_ERROR(StartDisk());
  if (host_ == nullptr) SPILLWAY_RETURN_IF_ERROR(StartHost(context));
  if (capacity_ == nullptr) {
    capacity_ = std::make_unique<allocator::SharedCapacity>(host_.get(), disk_.get(), writes_.get());
  }
  if (addresses_ == nullptr) SPILLWAY_RETURN_IF_ERROR(ReserveAddresses(device_bytes));
  addresses_ready_.store(addresses_.get(), std::memory_order_release);
  return absl::OkStatus();
}

absl::Status Tiers::StartHost(CUcontext context) {
  HostSharing sharing = ShareHostMemory(settings_, AvailableHostMemory());
  allocator::HostPool::Options pool = SharedPoolOptions(sharing, disk_ == nullptr ? 0 : disk_->drives());
  host_cap_bytes_ = sharing.share_bytes;
  pool.waits = waits_;
  if (pool.storage_bytes > 0) pool.reach = FindReach(context);
  // If this fails, the share ends: the others would leave a part to this process otherwise.
  SPILLWAY_ASSIGN_OR_RETURN(host_, allocator::HostPool::Create(driver_, context, pool));
  host_share_ = std::move(sharing.share);
  return absl::OkStatus();
}

// Returns the devices whose kernels reach host memory, if that works here; otherwise none.
allocator::HostReach Tiers::FindReach(CUcontext context) const {
  if (settings_.reach == ReachHost::kOff || settings_.Observes() || settings_.audit) return {};
  const auto ask = [&]() -> absl::StatusOr<allocator::HostReach> {
    int devices = 0;
    SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuDeviceGetCount(&devices), "cuDeviceGetCount"));
    SPILLWAY_ASSIGN_OR_RETURN(allocator::HostReach reach, allocator::FindHostReach(driver_, devices));
    if (reach.devices.empty()) return reach;
    SPILLWAY_RETURN_IF_ERROR(allocator::TryHostReach(driver_, context, reach, kChunkBytes));
    return reach;
  };
  auto reach = ask();
  if (reach.ok()) return *std::move(reach);
  os::Log(os::LogLevel::kInfo,
          absl::StrCat("kernels cannot use host memory here: ", std::string(reach.status().message())));
  return {};
}

absl::Status Tiers::StartDisk() {
  if (settings_.on_full == OnFull::kError || settings_.Observes()) return absl::OkStatus();
  const std::vector<DirectoryEntry> directories = DirectoriesOf(settings_);
  if (directories.empty()) return absl::OkStatus();
  if (settings_.write_budget && settings_.write_budget->bytes == 0) {
    if (settings_.dirs) os::ReportLine("SPILLWAY_WRITE_BUDGET is 0: nothing is written to SPILLWAY_DIRS");
    return absl::OkStatus();
  }
  if (writes_ == nullptr && settings_.write_budget) MakeWriteBudget(*settings_.write_budget);
  io::SpillStoreOptions options = StoreOptions(settings_, directories);
  options.write_budget = writes_.get();
  if (settings_.encrypt) {
    auto cipher = io::SlotCipher::Create();
    if (!cipher.ok())
      return absl::InvalidArgumentError(
          absl::StrCat("SPILLWAY_ENCRYPT: ", std::string(cipher.status().message())));
    options.cipher = *std::move(cipher);
  }
  options.waits = waits_;
  auto store = io::SpillStore::Create(std::move(options));
  if (store.ok()) {
    disk_ = *std::move(store);
    for (const DirectoryEntry& entry : directories) disk_paths_.push_back(entry.path);
    if (settings_.io_model.Limits())
      os::ReportLine(absl::StrCat("the disk is modeled: ", io::DescribeModels(settings_.io_model)));
    if (!settings_.io_faults.empty())
      os::ReportLine(absl::StrCat("the disk fails on purpose: ", io::DescribeFaults(settings_.io_faults)));
    return absl::OkStatus();
  }
  // A directory that the user named must work; the default one is a convenience.
  if (settings_.dirs)
    return absl::InvalidArgumentError(absl::StrCat("SPILLWAY_DIRS: ", std::string(store.status().message())));
  os::Log(os::LogLevel::kWarn, absl::StrCat("no disk tier: ", std::string(store.status().message())));
  return absl::OkStatus();
}

void Tiers::MakeWriteBudget(const WriteLimit& limit) {
  const std::string path = WriteRecordPath();
  writes_ = std::make_unique<io::WriteBudget>(
      io::WriteBudget::Options{.bytes = limit.bytes, .interval = limit.interval, .path = path});
  // Counts what the others have written, since a promise may come before the reporter's first sample, which
  // reports any error.
  writes_->Record().IgnoreError();
  if (path.empty())
    os::ReportLine(
        "SPILLWAY_WRITE_BUDGET holds for this process alone: without HOME and XDG_CACHE_HOME there is no "
        "place for a record");
}

absl::Status Tiers::ReserveAddresses(uint64_t device_bytes) {
  int devices = 0;
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuDeviceGetCount(&devices), "cuDeviceGetCount"));
  devices = std::clamp(devices, 1, allocator::kMaxDevices);
  const uint64_t disk_bytes = disk_ == nullptr ? 0 : kDefaultSpillCapacity;
  uint64_t bytes = AddressSpaceBytes(device_bytes, host_->storage_cap_bytes(), disk_bytes);
  while (true) {
    auto map = allocator::AddressMap::Reserve(driver_, devices, bytes, kChunkBytes);
    if (map.ok()) {
      addresses_ = *std::move(map);
      if (!addresses_->at_hint()) {
        os::ReportLine(absl::StrCat("the driver placed the blocks' addresses at 0x",
                                    absl::Hex(addresses_->base()),
                                    " and accepts no other place: numbers passed to kernels may be taken for "
                                    "addresses, which costs speed, not correctness"));
      }
      return absl::OkStatus();
    }
    bytes /= 2;  // a limit on address space (ulimit -v): less of it will do for a while
    if (bytes < device_bytes) return map.status();
  }
}

int Tiers::DeviceOf(const void* address) const {
  const allocator::AddressMap* const map = addresses_ready_.load(std::memory_order_acquire);
  const auto value = reinterpret_cast<uint64_t>(address);
  if (map == nullptr || !map->Contains(value)) return -1;
  return static_cast<int>((value - map->base()) / map->bytes_per_device());
}

void Tiers::Shutdown(std::chrono::milliseconds disk_limit) {
  if (disk_ != nullptr) RunWithin(disk_limit, [disk = disk_.get()] { disk->Shutdown(); });
  if (host_ != nullptr) host_->Shutdown();
}

void Tiers::AbandonAfterFork() {
  if (disk_ != nullptr) disk_->AbandonAfterFork();
  if (host_share_ != nullptr) host_share_->Close();
}

}  // namespace spillway::integration
