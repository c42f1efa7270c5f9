// Start and end of what the engine is made of, and what it answers while it serves.

#include "integration/engine/runtime.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "integration/engine/bounded_call.h"
#include "integration/engine/device_check.h"
#include "integration/engine/iteration_trace.h"
#include "integration/engine/machine.h"
#include "integration/engine/node_sharing.h"
#include "integration/engine/not_served.h"
#include "integration/engine/sizing.h"
#include "integration/hooks/hook_table.h"
#include "integration/hooks/launch_reports.h"
#include "integration/settings/environment.h"
#include "io/os/bytes_text.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

// Release by Set, acquire by Get.
std::atomic<Runtime*> g_runtime{nullptr};

// Of the 2 s that an exit handler has. The host tier takes 0.2 s at most, the reporter what is left.
constexpr auto kLockWait = std::chrono::milliseconds(100);
constexpr auto kDevicesEnd = std::chrono::milliseconds(900);
constexpr auto kDiskEnd = std::chrono::milliseconds(1000);
constexpr auto kDiskEndWhenLate = std::chrono::milliseconds(400);
constexpr auto kWholeEnd = std::chrono::milliseconds(1950);  // docs/limits.md says 2 s

// Address space for spilled bytes where it is not known how much the disk will hold.
constexpr uint64_t kDefaultSpillCapacity = uint64_t{1} << 40;

absl::Status Gone() { return absl::FailedPreconditionError("Spillway has ended in this process"); }

io::SpillStoreOptions StoreOptions(const Settings& settings, const std::vector<DirectoryEntry>& directories) {
  io::SpillStoreOptions store;
  for (const DirectoryEntry& entry : directories)
    store.directories.push_back(SharedDirectory(settings, entry));
  if (settings.disk_reserve) store.disk_reserve_bytes = std::max<uint64_t>(1, settings.disk_reserve->bytes);
  store.checksum = settings.checksum ? io::ChecksumMode::kOn : io::ChecksumMode::kOff;
  store.model = settings.io_model;
  return store;
}

}  // namespace

Runtime* Runtime::Get() { return g_runtime.load(std::memory_order_acquire); }
void Runtime::Set(Runtime* runtime) { g_runtime.store(runtime, std::memory_order_release); }

Runtime::Runtime(const spillway_shim* shim, Settings settings)
    : shim_(shim),
      settings_(std::move(settings)),
      waits_(os::Clock::System(), nullptr, settings_.wait_limit) {}

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Create(const spillway_shim* shim, Settings settings,
                                                         DenyList deny_list) {
  std::unique_ptr<Runtime> runtime(new Runtime(shim, std::move(settings)));
  SPILLWAY_ASSIGN_OR_RETURN(runtime->driver_, allocator::CudaDriver::Load(shim->real));
  const HookReport report = InstallHooks(shim);
  if (!report.missing.empty()) {
    runtime->missing_hooks_ = absl::StrJoin(report.missing, ", ");
    os::ReportLine(
        absl::StrCat("nothing will be moved off the GPU: could not wrap ", runtime->missing_hooks_));
  }
  runtime->audit_ = std::make_unique<AuditSetup>(runtime->settings_, std::move(deny_list), GetHookState());
  shim->set_unwrapped_callback(&Runtime::OnUnwrapped);
  shim->set_newer_callback(&Runtime::OnNewerCall);
  return runtime;
}

// ---- Starting, at the first block.

absl::StatusOr<allocator::Residency*> Runtime::Device(int device) {
  if (allocator::Residency* residency = Existing(device)) return residency;
  if (device >= allocator::kMaxDevices && settings_.require)
    return NotServedOn(device, "its number is too high", IfNot(settings_));
  if (dead_.load() || device < 0 || device >= allocator::kMaxDevices) return Gone();
  os::MutexLock lock(&mu_);
  const auto place = static_cast<size_t>(device);
  if (dead_.load()) return Gone();
  if (allocator::Residency* residency = Existing(device)) return residency;  // another thread started it
  if (!failures_[place].ok()) return failures_[place];
  auto residency = StartDeviceLocked(device);
  if (residency.ok()) return residency;
  const std::string reason(residency.status().message());
  if (absl::StartsWith(reason, "SPILLWAY_")) {
    failures_[place] =
        residency.status();  // the user's own setting does not work: the job must not go on without it
  } else {
    failures_[place] = NotServedOn(device, reason, IfNot(settings_));
  }
  return failures_[place];
}

// What the device's residency works with, except its observer.
allocator::ResidencyParts Runtime::PartsOf(CUcontext context) {
  allocator::ResidencyParts parts;
  parts.driver = driver_.get();
  parts.context = context;
  parts.addresses = addresses_.get();
  parts.host = host_.get();
  parts.disk = disk_.get();
  parts.capacity = capacity_.get();
  parts.waits = &waits_;
  parts.audit = audit_->auditor();
  parts.permission = trust_.get();
  parts.refusal_advice = [](uint64_t tag, size_t blocks) {
    return RefusalAdvice(NameOfTag(&GetHookState()->functions, tag), blocks);
  };
  parts.name_of_launch = [](uint64_t tag) { return NameOfTag(&GetHookState()->functions, tag); };
  parts.hash_code = &hash_code_;
  parts.refusals = &refusals_;
  return parts;
}

// Records the device's launches and has plans made; null where nothing asks for that.
std::unique_ptr<Predictor> Runtime::MakePredictor(int device, CUcontext context, bool evict) {
  // An audit knows no plan: what is fetched ahead would be mapped under launches that do not name it.
  const bool plan = settings_.policy == PolicyKind::kPlan && evict && !settings_.audit;
  const bool trace = !settings_.trace.empty() || !settings_.report.empty();
  const bool reckon = settings_.policy == PolicyKind::kLru && evict && !settings_.audit;
  if (!settings_.Observes() && !plan && !reckon && !trace) return nullptr;
  PredictorOptions prediction;
  prediction.device = device;
  prediction.foresight = plan ? Foresight::kPlan : reckon ? Foresight::kReckon : Foresight::kObserve;
  prediction.driver = driver_.get();
  prediction.context = context;
  prediction.write_facts = [this, device]() -> std::shared_ptr<const policy::WriteFacts> {
    allocator::Residency* const residency = Existing(device);
    return residency == nullptr ? nullptr : residency->LearntWrites();
  };
  prediction.keep_iteration = trace;
  prediction.host_bytes = [host = host_.get()] { return host->storage_due_bytes(); };
  prediction.has_disk = disk_ != nullptr;
  return std::make_unique<Predictor>(prediction);
}

absl::StatusOr<allocator::Residency*> Runtime::StartDeviceLocked(int device) {
  SPILLWAY_RETURN_IF_ERROR(Followable());
  CUdevice handle = 0;
  CUcontext context = nullptr;
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuDeviceGet(&handle, device), "cuDeviceGet"));
  int major = 0, minor = 0;  // an answer that the driver refuses counts as not known
  (void)driver_->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle);
  (void)driver_->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle);
  SPILLWAY_RETURN_IF_ERROR(CheckDevice(10 * major + minor));
  // Never released: blocks live as long as the process.
  SPILLWAY_RETURN_IF_ERROR(
      driver_->ToStatus(driver_->cuDevicePrimaryCtxRetain(&context, handle), "cuDevicePrimaryCtxRetain"));
  SPILLWAY_RETURN_IF_ERROR(StartLocked(device, context));
  allocator::ResidencyOptions options;
  options.device = device;
  options.evict = MayEvictLocked();
  options.map_at_once = eviction_off_.load();
  options.measure_link = true;
  options.verify_always = settings_.trust == Trust::kStrict;
  SPILLWAY_ASSIGN_OR_RETURN(options.budget_bytes, BudgetOf(device, context));
  allocator::ResidencyParts parts = PartsOf(context);
  const auto place = static_cast<size_t>(device);
  predictors_[place] = MakePredictor(device, context, options.evict);
  parts.observer = predictors_[place].get();
  if (report_ != nullptr) parts.motion = report_->AddDevice(FactsOfDevice(device, options.budget_bytes));
  SPILLWAY_ASSIGN_OR_RETURN(owned_[place], allocator::Residency::Create(options, parts));
  if (predictors_[place] != nullptr) {
    const absl::Status started = predictors_[place]->Start(owned_[place].get());
    if (!started.ok()) owned_[place]->Shutdown();
    SPILLWAY_RETURN_IF_ERROR(started);
  }
  AttachDevice(&hook_context_, device, owned_[place].get(), context);
  residencies_[place].store(owned_[place].get());
  // Evictions may have been switched off meanwhile, by a thread that did not see this device yet.
  if (eviction_off_.load()) owned_[place]->StopEvicting().IgnoreError();
  ReportServing(device, options);
  return owned_[place].get();
}

// Makes what all devices share, at the first device.
absl::Status Runtime::StartLocked(int device, CUcontext context) {
  if (started_) return absl::OkStatus();
  SPILLWAY_ASSIGN_OR_RETURN(const uint64_t total, DeviceBytes(device));
  trace_path_ = OutputFile::Expand(settings_.trace, settings_.ranks.rank);
  if (disk_ == nullptr) SPILLWAY_RETURN_IF_ERROR(StartDiskLocked());
  if (host_ == nullptr) SPILLWAY_RETURN_IF_ERROR(StartHostLocked(context));
  if (capacity_ == nullptr) {
    capacity_ = std::make_unique<allocator::SharedCapacity>(host_.get(), disk_.get());
  }
  if (addresses_ == nullptr) SPILLWAY_RETURN_IF_ERROR(ReserveAddressesLocked(total));
  int devices = 0;
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuDeviceGetCount(&devices), "cuDeviceGetCount"));
  hook_context_.several_devices = devices > 1;
  hook_context_.addresses = addresses_.get();
  hook_context_.switch_eviction_off = &Runtime::SwitchEvictionOff;
  hook_context_.audit = settings_.audit;
  if (settings_.trust == Trust::kStrict) {
    trust_ = std::make_unique<BlockTrust>();
    hook_context_.strict = true;
    hook_context_.trust = trust_.get();
  }
  PublishHookContext(&hook_context_);
  addresses_ready_.store(addresses_.get(), std::memory_order_release);
  StartReports();
  started_ = true;
  return absl::OkStatus();
}

absl::Status Runtime::StartHostLocked(CUcontext context) {
  HostSharing sharing = ShareHostMemory(settings_, AvailableHostMemory(), disk_ != nullptr);
  allocator::HostPool::Options pool = SharedPoolOptions(sharing, disk_ != nullptr);
  host_cap_bytes_ = sharing.part_bytes;
  host_share_ = std::move(sharing.share);
  pool.waits = &waits_;
  SPILLWAY_ASSIGN_OR_RETURN(host_, allocator::HostPool::Create(driver_.get(), context, pool));
  return absl::OkStatus();
}

absl::Status Runtime::StartDiskLocked() {
  if (settings_.on_full == OnFull::kError || settings_.Observes()) return absl::OkStatus();
  std::vector<DirectoryEntry> directories;
  if (settings_.dirs) {
    directories = *settings_.OwnDirectories();
  } else {
    const std::string path = FirstDiskDirectory({"/var/tmp", EnvironmentValue("TMPDIR"), "/tmp"});
    if (!path.empty()) directories.push_back({path, 0});
  }
  if (directories.empty()) return absl::OkStatus();
  io::SpillStoreOptions store_options = StoreOptions(settings_, directories);
  store_options.waits = &waits_;
  auto store = io::SpillStore::Create(std::move(store_options));
  if (store.ok()) {
    disk_ = *std::move(store);
    for (const DirectoryEntry& entry : directories) disk_paths_.push_back(entry.path);
    if (settings_.io_model.Limits())
      os::ReportLine(absl::StrCat("the disk is modelled: ", io::DescribeModel(settings_.io_model)));
    return absl::OkStatus();
  }
  // A directory that the user named must work; the default one is a convenience.
  if (settings_.dirs) {
    return absl::InvalidArgumentError(absl::StrCat("SPILLWAY_DIRS: ", std::string(store.status().message())));
  }
  os::Log(os::LogLevel::kWarn, absl::StrCat("no disk tier: ", std::string(store.status().message())));
  return absl::OkStatus();
}

absl::Status Runtime::ReserveAddressesLocked(uint64_t device_total) {
  int devices = 0;
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuDeviceGetCount(&devices), "cuDeviceGetCount"));
  devices = std::clamp(devices, 1, allocator::kMaxDevices);
  const uint64_t host = host_->storage_cap_bytes();
  const uint64_t disk = disk_ == nullptr ? 0 : kDefaultSpillCapacity;
  uint64_t bytes = AddressSpaceBytes(device_total, host, disk);
  while (true) {
    auto map = allocator::AddressMap::Reserve(driver_.get(), devices, bytes, kChunkBytes);
    if (map.ok()) {
      addresses_ = *std::move(map);
      return absl::OkStatus();
    }
    bytes /= 2;  // a limit on address space (ulimit -v): less of it will do for a while
    if (bytes < device_total) return map.status();
  }
}

absl::StatusOr<uint64_t> Runtime::BudgetOf(int device, CUcontext context) {
  allocator::ScopedContext scope(driver_.get(), context);
  size_t free = 0;
  size_t total = 0;
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuMemGetInfo_v2(&free, &total), "cuMemGetInfo"));
  total_bytes_[static_cast<size_t>(device)].store(total, std::memory_order_relaxed);
  const HookState* hooks = GetHookState();
  const int64_t external = hooks == nullptr ? 0 : std::max<int64_t>(0, hooks->external.bytes(device));
  if (!settings_.gpu_memory || settings_.Observes())
    return DefaultBudget(free, static_cast<uint64_t>(external));
  const uint64_t wanted = settings_.gpu_memory->Of(total);
  if (wanted > free + static_cast<uint64_t>(external)) {
    os::Log(os::LogLevel::kWarn, absl::StrCat("SPILLWAY_GPU_MEMORY is ", os::BytesText(wanted), ", but only ",
                                              os::BytesText(free), " are free on GPU ", device));
  }
  return wanted;
}

// ---- In service.

allocator::Residency* Runtime::Existing(int device) const {
  if (device < 0 || device >= allocator::kMaxDevices || dead_.load(std::memory_order_relaxed)) return nullptr;
  return residencies_[static_cast<size_t>(device)].load(std::memory_order_acquire);
}

bool Runtime::Owns(const void* address) const {
  const allocator::AddressMap* map = addresses_ready_.load(std::memory_order_acquire);
  return map != nullptr && map->Contains(reinterpret_cast<uint64_t>(address));
}

allocator::Residency* Runtime::Owner(const void* address) const {
  if (!Owns(address)) return nullptr;
  const allocator::AddressMap* map = addresses_ready_.load(std::memory_order_acquire);
  const uint64_t offset = reinterpret_cast<uint64_t>(address) - map->base();
  return Existing(static_cast<int>(offset / map->bytes_per_device()));
}

absl::StatusOr<uint64_t> Runtime::DeviceBytes(int device) const {
  CUdevice handle = 0;
  size_t bytes = 0;
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuDeviceGet(&handle, device), "cuDeviceGet"));
  SPILLWAY_RETURN_IF_ERROR(
      driver_->ToStatus(driver_->cuDeviceTotalMem_v2(&bytes, handle), "cuDeviceTotalMem"));
  return bytes;
}

void Runtime::MarkIteration() {
  bool any = false;
  for (size_t place = 0; place < predictors_.size(); ++place) {
    if (residencies_[place].load(std::memory_order_acquire) == nullptr) continue;
    any = true;
    if (predictors_[place] != nullptr) predictors_[place]->MarkIteration();
  }
  if (any && report_ != nullptr) report_->MarkIteration();
}

// ---- Ending.

// False when another thread does not get on with what it starts, under the lock.
bool Runtime::LockForEnd() {
  const auto deadline = std::chrono::steady_clock::now() + kLockWait;
  while (!mu_.TryLock()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void Runtime::Shutdown() {
  if (dead_.exchange(true)) return;
  const auto begin = std::chrono::steady_clock::now();
  PublishHookContext(nullptr);
  if (!LockForEnd()) return os::ReportLine("ends without a summary: a GPU or a disk does not answer");
  // Pointers, not members: a late thread goes on without the lock.
  std::vector<Predictor*> predictors;
  std::vector<allocator::Residency*> residencies;
  for (const auto& predictor : predictors_) {
    if (predictor != nullptr) predictors.push_back(predictor.get());
  }
  for (const auto& residency : owned_) {
    if (residency != nullptr) residencies.push_back(residency.get());
  }
  bool late = false;
  if (!residencies.empty()) {
    late = !RunWithin(kDevicesEnd, [this, predictors, residencies] {
      for (Predictor* predictor : predictors) predictor->Stop();
      WriteTraces();
      for (allocator::Residency* residency : residencies) residency->Shutdown();
    });
  }
  if (disk_ != nullptr) {
    RunWithin(late ? kDiskEndWhenLate : kDiskEnd, [disk = disk_.get()] { disk->Shutdown(); });
  }
  if (host_ != nullptr) host_->Shutdown();
  if (reporter_ != nullptr) reporter_->Finish(begin + kWholeEnd);
  if (started_ && !audit_->Summary().empty()) os::ReportLine(audit_->Summary());
  mu_.Unlock();
}

// After the predictors have stopped.
void Runtime::WriteTraces() const {
  if (settings_.trace.empty() && report_ == nullptr) return;
  std::vector<DeviceIteration> devices;
  for (int device = 0; device < allocator::kMaxDevices; ++device) {
    const auto& predictor = predictors_[static_cast<size_t>(device)];
    if (predictor != nullptr) devices.push_back({device, predictor->FollowedIteration()});
  }
  const auto name = [](uint64_t tag) { return NameOfTag(&GetHookState()->functions, tag); };
  if (report_ != nullptr) report_->SetIterations(devices, name);
  if (settings_.trace.empty()) return;
  for (const std::string& line : WriteIterationTraces(trace_path_, std::move(devices), name))
    os::ReportLine(line);
}

void Runtime::AbandonAfterFork() {
  dead_.store(true);
  PublishHookContext(nullptr);
  // No lock: another thread of the parent may have held it. What was being built at the fork is not
  // reached, and its descriptors live in this child until it ends (docs/limits.md); so do the other copies.
  for (auto& residency : residencies_) {
    if (allocator::Residency* existing = residency.load()) existing->AbandonAfterFork();
  }
  if (disk_ != nullptr) disk_->AbandonAfterFork();
  if (host_share_ != nullptr) host_share_->Close();
  if (reporter_ != nullptr) reporter_->AbandonAfterFork();
}

}  // namespace spillway::integration
