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
#include "integration/engine/kernel_passes.h"
#include "integration/engine/not_served.h"
#include "integration/hooks/access_set_builder.h"
#include "integration/hooks/hook_table.h"
#include "integration/hooks/launch_reports.h"
#include "integration/settings/setting_limits.h"
#include "io/os/bytes_text.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

// Released by Set, acquired by Get.
std::atomic<Runtime*> g_runtime{nullptr};

// Parts of the 2 s that an exit handler has. The host tier takes 0.2 s at most, the reporter what is left.
constexpr auto kLockWait = std::chrono::milliseconds(100);
constexpr auto kDevicesEnd = std::chrono::milliseconds(900);
constexpr auto kDiskEnd = std::chrono::milliseconds(1000);
constexpr auto kDiskEndWhenLate = std::chrono::milliseconds(400);
constexpr auto kWholeEnd = std::chrono::milliseconds(1950);  // docs/limits-io.md says 2 s

absl::Status EndedError() { return absl::FailedPreconditionError("Spillway has ended in this process"); }

}  // namespace

Runtime* Runtime::Get() { return g_runtime.load(std::memory_order_acquire); }
void Runtime::Set(Runtime* runtime) { g_runtime.store(runtime, std::memory_order_release); }

Runtime::Runtime(const spillway_shim* shim, Settings settings,
                 std::unique_ptr<const allocator::CudaDriver> driver, std::string missing_hooks,
                 DenyList deny_list)
    : settings_(std::move(settings)),
      driver_(std::move(driver)),
      waits_(os::Clock::System(), nullptr, settings_.wait_limit),
      tiers_(&settings_, driver_.get(), &waits_),
      evictions_(shim, &settings_, &devices_, std::move(missing_hooks)),
      pause_(&devices_, &waits_),
      sharing_(&settings_, driver_.get(), &waits_, &pause_),
      profile_(settings_.profile, &devices_, &GetHookState()->functions),
      reports_(
          {shim, &settings_, driver_.get(), &tiers_, &devices_, &evictions_, &waits_, &pause_, &profile_}),
      audit_(settings_, std::move(deny_list), GetHookState()) {
  const os::MutexLock lock(&mu_);
  caps_.fill(UINT64_MAX);
}

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Create(const spillway_shim* shim, Settings settings,
                                                         DenyList deny_list) {
  SPILLWAY_ASSIGN_OR_RETURN(auto driver, allocator::CudaDriver::Load(shim->real));
  std::string missing = absl::StrJoin(InstallHooks(shim).missing, ", ");
  if (!missing.empty())
    os::ReportLine(absl::StrCat("nothing will be moved off the GPU: could not wrap ", missing));
  std::unique_ptr<Runtime> runtime(
      new Runtime(shim, std::move(settings), std::move(driver), std::move(missing), std::move(deny_list)));
  shim->set_unwrapped_callback(&Runtime::OnUnwrapped);
  shim->set_newer_callback(&Runtime::OnNewerCall);
  return runtime;
}

// ---- Starting, at the first block.

absl::StatusOr<allocator::Residency*> Runtime::Device(int device) {
  if (allocator::Residency* residency = Existing(device)) return residency;
  if (device >= allocator::kMaxDevices && settings_.require)
    return NotServedOn(device, "its number is too high", IfNot(settings_));
  if (dead_.load() || device < 0 || device >= allocator::kMaxDevices) return EndedError();
  os::MutexLock lock(&mu_);
  if (dead_.load()) return EndedError();
  if (allocator::Residency* residency = Existing(device)) return residency;  // another thread started it
  absl::Status& failure = failures_[static_cast<size_t>(device)];
  if (!failure.ok()) return failure;
  auto residency = StartDeviceLocked(device);
  if (residency.ok()) return residency;
  // A job must not go on without the user's own setting if that does not work.
  const std::string reason(residency.status().message());
  failure = absl::StartsWith(reason, "SPILLWAY_") ? residency.status()
                                                  : NotServedOn(device, reason, IfNot(settings_));
  return failure;
}

absl::StatusOr<allocator::Residency*> Runtime::StartDeviceLocked(int device) {
  SPILLWAY_RETURN_IF_ERROR(Followable());
  SPILLWAY_ASSIGN_OR_RETURN(CUcontext const context, OpenDevice(device));
  SPILLWAY_RETURN_IF_ERROR(StartSharedLocked(device, context));
  SPILLWAY_ASSIGN_OR_RETURN(const DeviceMemory memory, MemoryOf(device, context));
  allocator::ResidencyOptions options;
  options.device = device;
  options.budget_bytes = memory.budget.bytes;
  options.reserve_bytes = memory.budget.reserve_bytes;
  options.cap_bytes = caps_[static_cast<size_t>(device)];
  options.evict = evictions_.MayEvict();
  options.map_at_once = evictions_.ended();
  options.measure_link = true;
  options.soft_evictions = settings_.reach == ReachHost::kOn;
  options.verify_arrivals = settings_.verify;
  options.verify_always = settings_.trust == Trust::kStrict;
  ServedDevice served_device{device, memory.total_bytes, MakePredictor(device, context, options.evict),
                             nullptr};
  allocator::ResidencyParts parts = PartsOf(context);
  parts.observer = served_device.predictor.get();
  parts.motion = reports_.AddDevice(device, MemoryPartsOf(memory.budget, memory.total_bytes));
  SPILLWAY_ASSIGN_OR_RETURN(
      DeviceShare* const share,
      sharing_.AddDevice(device, context, memory.jobs_bytes, memory.total_bytes - memory.jobs_bytes));
  parts.share = share;
  SPILLWAY_ASSIGN_OR_RETURN(served_device.residency, allocator::Residency::Create(options, parts));
  const ServedDevice* const served = devices_.Keep(std::move(served_device));
  if (share != nullptr) share->Bind(served->residency.get());
  if (served->predictor != nullptr) {
    const absl::Status started = served->predictor->Start(served->residency.get());
    if (!started.ok()) served->residency->Shutdown();
    SPILLWAY_RETURN_IF_ERROR(started);
  }
  AttachDevice(&hook_context_, device, served->residency.get(), context);
  devices_.Publish(device);
  // A thread that did not see this device yet may have ended evictions meanwhile.
  if (evictions_.ended()) served->residency->StopEvicting().IgnoreError();
  reports_.ReportServing(*served, options);
  return served->residency.get();
}

// Opens the device's primary context, which is never released: blocks live as long as the process.
absl::StatusOr<CUcontext> Runtime::OpenDevice(int device) const {
  CUdevice handle = 0;
  CUcontext context = nullptr;
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuDeviceGet(&handle, device), "cuDeviceGet"));
  int major = 0, minor = 0;  // an answer that the driver refuses counts as not known
  (void)driver_->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle);
  (void)driver_->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle);
  SPILLWAY_RETURN_IF_ERROR(CheckDevice(10 * major + minor));
  SPILLWAY_RETURN_IF_ERROR(
      driver_->ToStatus(driver_->cuDevicePrimaryCtxRetain(&context, handle), "cuDevicePrimaryCtxRetain"));
  return context;
}

// Creates the parts that all devices share, at the first device.
absl::Status Runtime::StartSharedLocked(int device, CUcontext context) {
  if (started_) return absl::OkStatus();
  SPILLWAY_ASSIGN_OR_RETURN(const uint64_t device_bytes, DeviceBytes(device));
  SPILLWAY_RETURN_IF_ERROR(tiers_.Start(context, device_bytes));
  int devices = 0;
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuDeviceGetCount(&devices), "cuDeviceGetCount"));
  hook_context_.several_devices = devices > 1;
  hook_context_.addresses = tiers_.addresses();
  hook_context_.switch_eviction_off = &Runtime::SwitchEvictionOff;
  hook_context_.gates_all = settings_.audit || settings_.reach == ReachHost::kOn;
  if (settings_.trust == Trust::kStrict) {
    trust_ = std::make_unique<BlockTrust>();
    hook_context_.strict = true;
    hook_context_.trust = trust_.get();
  }
  PublishHookContext(&hook_context_);
  profile_.Begin(FindProfileKey(*driver_, device), tiers_.disk_paths());
  if (tiers_.disk() != nullptr) profile_.GuessSpeeds(tiers_.disk());
  reports_.Start();
  started_ = true;
  return absl::OkStatus();
}

absl::StatusOr<Runtime::DeviceMemory> Runtime::MemoryOf(int device, CUcontext context) const {
  allocator::ScopedContext scope(driver_.get(), context);
  size_t free = 0;
  size_t total = 0;
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuMemGetInfo_v2(&free, &total), "cuMemGetInfo"));
  const HookState* hooks = GetHookState();
  const uint64_t external =
      hooks == nullptr ? 0 : static_cast<uint64_t>(std::max<int64_t>(0, hooks->external.bytes(device)));
  const auto limited = [&](uint64_t bytes) { return Limited(bytes, settings_.most_gpu_memory, total); };
  if (settings_.Observes()) return DeviceMemory{DefaultBudget(free, external), total};
  if (settings_.share == ShareWhat::kGpu) {
    const uint64_t jobs = DefaultBudget(total, 0).bytes / kChunkBytes * kChunkBytes;
    const uint64_t asked = settings_.gpu_memory ? settings_.gpu_memory->Of(total) : UINT64_MAX;
    return DeviceMemory{{std::min(jobs, limited(asked)), 0}, total, jobs};
  }
  if (!settings_.gpu_memory)
    return DeviceMemory{LimitedBudget(DefaultBudget(free, external), limited(UINT64_MAX)), total};
  const uint64_t asked = settings_.gpu_memory->Of(total);
  const uint64_t wanted = limited(asked);
  if (wanted < asked) {
    os::Log(os::LogLevel::kWarn,
            absl::StrCat("gpu_memory under [limits] of /etc/spillway.conf lowers ", os::BytesText(asked),
                         " to ", os::BytesText(wanted), " on GPU ", device));
  }
  if (wanted > free + external) {
    os::Log(os::LogLevel::kWarn, absl::StrCat("SPILLWAY_GPU_MEMORY is ", os::BytesText(wanted), ", but only ",
                                              os::BytesText(free), " are free on GPU ", device));
  }
  return DeviceMemory{{wanted, 0}, total};
}

// Returns the parts that the device's residency works with, except its observers.
allocator::ResidencyParts Runtime::PartsOf(CUcontext context) {
  allocator::ResidencyParts parts;
  parts.driver = driver_.get();
  parts.context = context;
  parts.addresses = tiers_.addresses();
  parts.host = tiers_.host();
  parts.disk = tiers_.disk();
  parts.capacity = tiers_.capacity();
  parts.waits = &waits_;
  parts.audit = audit_.auditor();
  parts.permission = trust_.get();
  parts.launch_advice = [](uint64_t tag, size_t blocks) {
    return LaunchAdvice(NameOfTag(&GetHookState()->functions, tag), blocks);
  };
  parts.name_of_launch = [](uint64_t tag) { return NameOfTag(&GetHookState()->functions, tag); };
  parts.passes_of_launch = [](uint64_t tag) { return PassesOf(NameOfTag(&GetHookState()->functions, tag)); };
  parts.hash_code = &hash_code_;
  parts.refusals = &refusals_;
  parts.pause_gate = &pause_;
  return parts;
}

// Creates the predictor, which records the device's launches and has plans made; null if nothing asks for
// that.
std::unique_ptr<Predictor> Runtime::MakePredictor(int device, CUcontext context, bool evict) {
  // An audit has no plan: blocks that are fetched ahead would be mapped under launches that do not name them.
  const bool plan = settings_.policy == PolicyKind::kPlan && evict && !settings_.audit;
  const bool trace = !settings_.trace.empty() || !settings_.report.empty();
  const bool forecast = settings_.policy == PolicyKind::kLru && evict && !settings_.audit;
  if (!settings_.Observes() && !plan && !forecast && !trace) return nullptr;
  PredictorOptions prediction;
  prediction.device = device;
  prediction.mode = plan       ? PredictorMode::kPlan
                    : forecast ? PredictorMode::kForecast
                               : PredictorMode::kObserve;
  prediction.driver = driver_.get();
  prediction.context = context;
  prediction.write_facts = [this, device]() -> std::shared_ptr<const policy::WriteFacts> {
    return profile_.Writes(device, Existing(device));
  };
  prediction.known_rates = profile_.rates();
  prediction.keep_iteration = trace;
  prediction.host_bytes = [host = tiers_.host()] { return host->storage_cap_bytes(); };
  prediction.has_disk = tiers_.disk() != nullptr;
  return std::make_unique<Predictor>(prediction);
}

// ---- In service.

allocator::Residency* Runtime::Existing(int device) const {
  if (dead_.load(std::memory_order_relaxed)) return nullptr;
  const ServedDevice* const served = devices_.Find(device);
  return served == nullptr ? nullptr : served->residency.get();
}

allocator::Residency* Runtime::Owner(const void* address) const { return Existing(tiers_.DeviceOf(address)); }

absl::StatusOr<uint64_t> Runtime::DeviceBytes(int device) const {
  CUdevice handle = 0;
  size_t bytes = 0;
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(driver_->cuDeviceGet(&handle, device), "cuDeviceGet"));
  SPILLWAY_RETURN_IF_ERROR(
      driver_->ToStatus(driver_->cuDeviceTotalMem_v2(&bytes, handle), "cuDeviceTotalMem"));
  return bytes;
}

absl::Status Runtime::SetCap(int device, uint64_t bytes) {
  if (dead_.load() || device < 0 || device >= allocator::kMaxDevices) return EndedError();
  os::MutexLock lock(&mu_);
  caps_[static_cast<size_t>(device)] = bytes;
  if (allocator::Residency* const residency = Existing(device)) residency->SetCap(bytes);
  return absl::OkStatus();
}

absl::Status Runtime::SetGpuMemory(int device, const std::string& size) {
  if (dead_.load() || device < 0 || device >= allocator::kMaxDevices) return EndedError();
  if (absl::EqualsIgnoreCase(size, "none")) return SetCap(device, UINT64_MAX);
  const auto refused = [&](const std::string& accepted) {
    return absl::InvalidArgumentError(
        absl::StrCat("set_gpu_memory(", size, ") is invalid; expected: none, or ", accepted));
  };
  const auto parsed = setting_type::ShareAboveZero::Read(size, "");
  if (!parsed.ok()) return refused(std::string(parsed.status().message()));
  SPILLWAY_ASSIGN_OR_RETURN(const uint64_t device_bytes, DeviceBytes(device));
  const uint64_t bytes = (*parsed)->Of(device_bytes);
  os::MutexLock lock(&mu_);
  uint64_t& cap = caps_[static_cast<size_t>(device)];
  allocator::Residency* const residency = Existing(device);
  if (residency == nullptr) {  // there are no blocks yet
    cap = bytes;
    return absl::OkStatus();
  }
  uint64_t ignored = 0, whole = 0;
  residency->MemoryInfo(&ignored, &whole);
  if (bytes > whole)
    return refused(absl::StrCat("at most ", os::BytesText(whole), ", which the device had for the job"));
  const auto too_little = [&](uint64_t least, const char* why) {
    return absl::ResourceExhaustedError(
        absl::StrCat("set_gpu_memory(", size, "): ", os::BytesText(least), " ", why));
  };
  const uint64_t least = residency->Stats().least_budget_bytes;
  if (least > bytes)
    return too_little(least,
                      "must be on the GPU at once: the largest launch, blocks that must stay, other memory");
  const uint64_t reached = residency->SetCap(bytes);
  if (reached > bytes) {
    residency->SetCap(cap);
    return too_little(reached, "are needed, since host memory and disk have no place for more");
  }
  cap = bytes;
  return absl::OkStatus();
}

absl::Status Runtime::Explain(int device, const absl::Status& refused) const {
  const absl::Status with_cause = evictions_.WithCause(refused);
  return dead_.load() ? with_cause : reports_.Explain(device, with_cause);
}

void Runtime::MarkIteration() const {
  devices_.ForEach([](const ServedDevice& served) {
    if (served.predictor != nullptr) served.predictor->MarkIteration();
  });
  reports_.MarkIteration();
}

void Runtime::SwitchEvictionOff(const char* reason) {
  Runtime* const runtime = Get();
  if (runtime != nullptr && !runtime->evictions_.ended()) runtime->evictions_.End(reason).IgnoreError();
}

// Does nothing inside a hooked call: bringing everything back would wait for the launch that this thread is
// in. The function's stub asks again at its next call.
void Runtime::OnUnwrapped(const char* name, int) {
  if (!InsideHookedCall()) SwitchEvictionOff(name);
}

// A function that no table of ours has may do anything with any address, so all blocks are there for its
// first call, and stay from then on. There is no address that it could use before the first block.
int Runtime::OnNewerCall(const char* name) {
  Runtime* const runtime = Get();
  if (runtime == nullptr || runtime->dead_.load() || !runtime->devices_.any()) return SPILLWAY_NEWER_CALL;
  if (InsideHookedCall()) return SPILLWAY_NEWER_CALL;
  const std::string reason = absl::StrCat(name, " (newer than this version of Spillway)");
  return runtime->evictions_.End(reason.c_str()).ok() ? SPILLWAY_NEWER_CALL_ALWAYS : SPILLWAY_NEWER_REFUSE;
}

// ---- Ending.

// Returns false if another thread does not finish what it starts, under the lock.
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
  const std::vector<const ServedDevice*> kept = devices_.Kept();
  bool late = false;
  if (!kept.empty()) {
    late = !RunWithin(kDevicesEnd, [this, kept] {
      for (const ServedDevice* const served : kept) {
        if (served->predictor != nullptr) served->predictor->Stop();
      }
      reports_.WriteIterations();
      for (const ServedDevice* const served : kept) served->residency->Shutdown();
    });
  }
  sharing_.Stop();
  pause_.Stop();
  tiers_.Shutdown(late ? kDiskEndWhenLate : kDiskEnd);
  reports_.Finish(begin + kWholeEnd);
  if (started_ && !audit_.Summary().empty()) os::ReportLine(audit_.Summary());
  mu_.Unlock();
}

void Runtime::AbandonAfterFork() {
  dead_.store(true);
  PublishHookContext(nullptr);
  // No lock is taken, since another thread of the parent may have held it. Objects that were being built at
  // the fork are not reached, and their descriptors live in this child until it ends
  // (docs/limits-integration.md); so do the other copies.
  devices_.ForEach([](const ServedDevice& served) { served.residency->AbandonAfterFork(); });
  sharing_.AbandonAfterFork();
  pause_.AbandonAfterFork();
  tiers_.AbandonAfterFork();
  reports_.AbandonAfterFork();
}

}  // namespace spillway::integration
