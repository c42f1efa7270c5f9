#include "tests/allocator/core_fixture.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "allocator/residency/audit.h"
#include "integration/simcuda/driver/simcuda.h"
#include "io/os/check.h"
#include "io/os/errno.h"

#if defined(__SANITIZE_THREAD__)
// A copy out, or a hash for a comparison, that a launch has made void may still read the block while the
// launch's kernel writes it: on a GPU as on the stand-in, whose copies are memmove. What they must not miss,
// the tests see by the bytes. The last: glibc's reuse of a finished thread's memory, which is not
// instrumented.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:MoveBytes\nrace:content_hash::Add\nrace:_dl_deallocate_tls\n";
}
#endif

namespace spillway::allocator {
namespace {

using Body = std::function<void(const std::vector<CUdeviceptr>&)>;

constexpr uint64_t kStride = 4096;  // one word per page is looked at, and the last word

void* DriverLibrary() {
  static void* const library = [] {
    setenv("SIMCUDA_GRANULARITY", "64KiB", 1);
    setenv("SIMCUDA_MEMORY", "512MiB", 0);  // the chunks of one test are not given back before the next
    return dlopen(SPILLWAY_SIMCUDA_DRIVER, RTLD_NOW | RTLD_GLOBAL);
  }();
  SPILLWAY_CHECK(library != nullptr);
  return library;
}

template <typename Function>
Function Entry(const char* name) {
  auto* const entry = reinterpret_cast<Function>(dlsym(DriverLibrary(), name));
  SPILLWAY_CHECK(entry != nullptr);
  return entry;
}

void RunBody(const simcuda_launch* launch, void** parameters) {
  std::unique_ptr<Body> body(*static_cast<Body**>(parameters[0]));
  std::vector<CUdeviceptr> addresses;
  for (size_t i = 1; i < launch->buffer_bytes / 8; ++i)
    addresses.push_back(*static_cast<CUdeviceptr*>(parameters[i]));
  (*body)(addresses);
}

// The kernel of `pointers` addresses behind one pointer to its body.
CUfunction KernelOf(size_t pointers) {
  static std::atomic<CUfunction> kernels[16];
  SPILLWAY_CHECK(pointers < 16);
  CUfunction function = kernels[pointers].load();
  if (function != nullptr) return function;
  std::vector<simcuda_parameter> parameters;
  for (size_t i = 0; i <= pointers; ++i) parameters.push_back({i * 8, 8});
  const std::string name = "test_body_" + std::to_string(pointers);
  const simcuda_kernel kernel = {name.c_str(), &RunBody, nullptr, parameters.data(), parameters.size()};
  SPILLWAY_CHECK(Entry<decltype(&simcuda_register_kernel)>("simcuda_register_kernel")(&kernel, &function) ==
                 0);
  kernels[pointers].store(function);
  return function;
}

uint64_t WordAt(uint64_t version, uint64_t offset) { return version * 0x9E3779B97F4A7C15u + offset; }

template <typename Visit>
void ForEachWord(CUdeviceptr address, uint64_t bytes, Visit visit) {
  for (uint64_t offset = 0; offset + 8 <= bytes; offset += kStride) {
    visit(reinterpret_cast<volatile uint64_t*>(address + offset), offset);
  }
  const uint64_t last = (bytes - 8) / 8 * 8;
  visit(reinterpret_cast<volatile uint64_t*>(address + last), last);
}

}  // namespace

const CudaDriver* CoreDevice::Driver() {
  static const CudaDriver* const driver = [] {
    auto loaded = CudaDriver::Load([](const char* symbol) { return dlsym(DriverLibrary(), symbol); });
    SPILLWAY_CHECK(loaded.ok());
    SPILLWAY_CHECK(Entry<CUresult (*)(unsigned)>("cuInit")(0) == CUDA_SUCCESS);
    return loaded->release();
  }();
  return driver;
}

CUcontext CoreDevice::Context() {
  static const CUcontext context = [] {
    CUcontext primary = nullptr;
    SPILLWAY_CHECK(Driver()->cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
    return primary;
  }();
  return context;
}

CoreDevice::CoreDevice(const CoreSetup& setup) {
  const absl::Status built = Build(setup);
  if (!built.ok()) std::fprintf(stderr, "no device of the core: %s\n", built.ToString().c_str());
  SPILLWAY_CHECK(built.ok());
}

absl::StatusOr<std::unique_ptr<CoreDevice>> CoreDevice::Create(const CoreSetup& setup) {
  absl::Status status;
  std::unique_ptr<CoreDevice> device(new CoreDevice(setup, &status));
  if (!status.ok()) return status;
  return device;
}

namespace {

ResidencyOptions OptionsOf(const CoreSetup& setup) {
  ResidencyOptions options;
  options.budget_bytes = setup.budget_bytes;
  options.idle_nanos = setup.idle_nanos;
  options.external_share_bytes = setup.external_share_bytes;
  options.reserve_bytes = setup.reserve_bytes;
  options.evict = setup.evict;
  options.measure_link = setup.measure_link;
  options.link_apart_nanos = setup.link_apart_nanos;
  options.soft_evictions = setup.soft;
  options.verify_arrivals = setup.verify_arrivals;
  options.verify_always = setup.verify_always;
  options.free_reserve_bytes = setup.free_reserve_bytes;
  options.run_ahead_bytes = setup.run_ahead_bytes;
  options.largest_handle = setup.largest_handle;
  return options;
}

}  // namespace

absl::Status CoreDevice::Build(const CoreSetup& setup) {
  const CudaDriver* const driver = setup.driver != nullptr ? setup.driver : Driver();
  may_fail_ = setup.may_fail;
  Driver()->cuCtxSetCurrent(Context());
  SPILLWAY_ASSIGN_OR_RETURN(addresses_, AddressMap::Reserve(driver, 1, uint64_t{4} << 30, kChunk));
  HostPool::Options host;
  host.buffer_bytes = kChunk;
  host.storage_bytes = setup.host_bytes;
  host.slab_bytes = 512 << 10;
  if (setup.reach) host.reach = {.node = 0, .devices = {0}};
  if (!setup.disk) host.evict_staging_buffers = host.fault_staging_buffers = 0;
  SPILLWAY_ASSIGN_OR_RETURN(host_, HostPool::Create(driver, Context(), host));
  // Not in the background: tests count the steps of single evictions.
  if (setup.grow_ahead) SPILLWAY_RETURN_IF_ERROR(host_->GrowStorageTo(setup.host_bytes));
  if (setup.disk) {
    io::SpillStoreOptions options;
    options.directories = {{setup.directory, setup.disk_cap_bytes}};
    options.growth_bytes = setup.growth_bytes;
    options.request_timeout = setup.request_timeout;
    options.shutdown_timeout = setup.shutdown_timeout;
    options.disk_reserve_bytes = 1 << 20;
    options.wrap_engine = setup.wrap_engine;
    options.checksum = setup.checksum;
    SPILLWAY_ASSIGN_OR_RETURN(disk_, io::SpillStore::Create(options));
    if (setup.grow_ahead)  // likewise
      disk_->GrowTo(std::min<uint64_t>(setup.disk_cap_bytes, 32 << 20)).IgnoreError();
  }
  ResidencyParts parts;
  parts.driver = driver;
  parts.context = Context();
  parts.addresses = addresses_.get();
  parts.host = host_.get();
  parts.disk = disk_.get();
  parts.observer = setup.observer;
  parts.motion = setup.motion;
  parts.audit = setup.audit;
  parts.hash_code = setup.hash_code;
  parts.refusals = setup.refusals;
  parts.pause_gate = setup.pause_gate;
  parts.share = setup.share;
  if (setup.audit != nullptr) {
    residency_ = std::make_unique<AuditedResidency>(OptionsOf(setup), parts);
  } else {
    residency_ = std::make_unique<DeviceResidency>(OptionsOf(setup), parts);
  }
  return residency_->Start();
}

CoreDevice::~CoreDevice() {
  if (!may_fail_) Synchronize();
  if (residency_ != nullptr) residency_->Shutdown();
  if (disk_ != nullptr) disk_->Shutdown();
  if (!may_fail_) Synchronize();
}

CUdeviceptr CoreDevice::MustAllocate(uint64_t bytes, CUstream stream) {
  absl::StatusOr<CUdeviceptr> address = residency_->Allocate(bytes, {stream, false});
  SPILLWAY_CHECK(address.ok());
  return *address;
}

CUresult CoreDevice::Launch(CUstream stream, const std::vector<CUdeviceptr>& addresses, Body body,
                            uint64_t tag, Way way) {
  static const auto launch_kernel = Entry<decltype(&cuLaunchKernel)>("cuLaunchKernel");
  AccessSet set;
  for (CUdeviceptr address : addresses) addresses_->Collect(address, &set);
  auto* owned = new Body(std::move(body));  // the kernel deletes it
  const CUfunction function = KernelOf(addresses.size());
  bool launched = false;
  const auto launch = [&] {
    if (launch_error.load() != CUDA_SUCCESS) return launch_error.load();
    std::vector<CUdeviceptr> copies = addresses;
    std::vector<void*> parameters = {&owned};
    for (CUdeviceptr& address : copies) parameters.push_back(&address);
    const CUresult answer = launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.data(), nullptr);
    launched = answer == CUDA_SUCCESS;
    return answer;
  };
  CUresult result = CUDA_ERROR_UNKNOWN;
  switch (way) {
    case Way::kGate: result = residency_->Run(set, {stream, false}, tag, launch); break;
    case Way::kPins: result = residency_->RunPinned(set, {stream, false}, tag, launch); break;
    case Way::kReachingAll: result = residency_->RunReachingAll(set, {stream, false}, tag, launch); break;
  }
  if (!launched) delete owned;
  return result;
}

CUresult CoreDevice::CopyIn(CUstream stream, CUdeviceptr address, const void* host, uint64_t bytes) {
  AccessSet set;
  addresses_->Collect(address, &set);
  return residency_->Run(set, {stream, false}, 2,
                         [&] { return Driver()->cuMemcpyHtoDAsync_v2(address, host, bytes, stream); });
}

CUresult CoreDevice::CopyOut(CUstream stream, void* host, CUdeviceptr address, uint64_t bytes) {
  AccessSet set;
  addresses_->Collect(address, &set);
  return residency_->Run(set, {stream, false}, 3,
                         [&] { return Driver()->cuMemcpyDtoHAsync_v2(host, address, bytes, stream); });
}

void CoreDevice::Fill(CUdeviceptr address, uint64_t bytes, uint64_t version) {
  ForEachWord(address, bytes,
              [&](volatile uint64_t* word, uint64_t offset) { *word = WordAt(version, offset); });
}

uint64_t CoreDevice::Differences(CUdeviceptr address, uint64_t bytes, uint64_t version) {
  uint64_t differences = 0;
  ForEachWord(address, bytes, [&](volatile uint64_t* word, uint64_t offset) {
    differences += *word != WordAt(version, offset);
  });
  return differences;
}

void SetSimcuda(const char* name, const std::string& value) {
  static const auto set = Entry<decltype(&simcuda_set)>("simcuda_set");
  SPILLWAY_CHECK(set(name, value.c_str()) == 0);
}

void PauseStreams(bool hold) {
  static const auto set = Entry<decltype(&simcuda_hold_streams)>("simcuda_hold_streams");
  set(hold ? 1 : 0);
}

void LaunchNothing(CUstream stream) {
  static const auto launch_kernel = Entry<decltype(&cuLaunchKernel)>("cuLaunchKernel");
  auto* owned = new Body([](const std::vector<CUdeviceptr>&) {});  // the kernel deletes it
  void* parameters[] = {&owned};
  SPILLWAY_CHECK(launch_kernel(KernelOf(0), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr) ==
                 CUDA_SUCCESS);
}

void SetCopyBandwidth(const char* bytes_per_second) { SetSimcuda("COPY_BANDWIDTH", bytes_per_second); }

CUstream CoreDevice::NewStream() {
  CUstream stream = nullptr;
  SPILLWAY_CHECK(Driver()->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
  return stream;
}

void CoreDevice::Synchronize() {
  ScopedContext scope(Driver(), Context());
  SPILLWAY_CHECK(Driver()->cuCtxSynchronize() == CUDA_SUCCESS);
}

}  // namespace spillway::allocator
