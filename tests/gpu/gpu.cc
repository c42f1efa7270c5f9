#include "tests/gpu/gpu.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_format.h"
#include "integration/simcuda/driver/simcuda.h"
#include "tests/gpu/kernels.ptx.h"

namespace spillway::gpu {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMaxBlocks = 264;  // two for each multiprocessor of a large device
constexpr uint32_t kMultiplier = 2654435761;

// simcuda, when that is the driver, also where Spillway stands before it; null on a GPU. After cuInit. Asked for by its
// name the driver would be Spillway's; the loader knows the same file under any other name.
void* FindSimcuda() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos || line.find("/simcuda/libcuda.so", path) == std::string::npos) continue;
    const int file = open(line.c_str() + path, O_RDONLY | O_CLOEXEC);
    void* const library = dlopen(absl::StrFormat("/proc/self/fd/%d", file).c_str(), RTLD_NOW | RTLD_NOLOAD);
    close(file);
    return library;
  }
  return nullptr;
}

[[noreturn]] void Stop(const std::string& words) {
  std::fprintf(stderr, "%s\n", words.c_str());
  std::exit(2);
}

// ---- Host twins of the kernels, for simcuda.

template <typename T>
T Parameter(void** parameters, int i) {
  return *static_cast<T*>(parameters[i]);
}

void FillTwin(const simcuda_launch*, void** parameters) {
  auto* const words = Parameter<uint32_t*>(parameters, 0);
  const uint64_t count = Parameter<uint64_t>(parameters, 1);
  const uint32_t first = Parameter<uint32_t>(parameters, 2) * kMultiplier;
  for (uint64_t i = 0; i < count; ++i) words[i] = first + static_cast<uint32_t>(i);
}

void CompareTwin(const simcuda_launch*, void** parameters) {
  auto* const words = Parameter<uint32_t*>(parameters, 0);
  const uint64_t count = Parameter<uint64_t>(parameters, 1);
  const uint32_t first = Parameter<uint32_t>(parameters, 2) * kMultiplier;
  uint32_t differences = 0;
  for (uint64_t i = 0; i < count; ++i) differences += words[i] != first + static_cast<uint32_t>(i);
  *Parameter<uint32_t*>(parameters, 3) += differences;
}

void MixTwin(const simcuda_launch*, void** parameters) {
  auto* const to = Parameter<uint32_t*>(parameters, 0);
  const auto* const from = Parameter<const uint32_t*>(parameters, 1);
  const uint64_t count = Parameter<uint64_t>(parameters, 2);
  for (uint64_t i = 0; i < count; ++i) to[i] = 5 * to[i] + from[i] + 7;
}

void CheckTwin(const simcuda_launch*, void** parameters) {
  const auto* const words = Parameter<const uint32_t*>(parameters, 0);
  const uint64_t count = Parameter<uint64_t>(parameters, 1);
  const uint32_t slope = Parameter<uint32_t>(parameters, 2), offset = Parameter<uint32_t>(parameters, 3);
  uint32_t differences = 0;
  for (uint64_t i = 0; i < count; ++i) differences += words[i] != offset + slope * static_cast<uint32_t>(i);
  *Parameter<uint32_t*>(parameters, 4) += differences;
}

void AddOnesTwin(const simcuda_launch*, void** parameters) {
  auto* const words = Parameter<float*>(parameters, 0);
  const uint64_t count = Parameter<uint64_t>(parameters, 1);
  for (uint64_t i = 0; i < count; ++i) words[i] += 1;
}

void SpinTwin(const simcuda_launch*, void** parameters) {
  const uint64_t nanos = Parameter<uint64_t>(parameters, 0);
  const timespec time = {static_cast<time_t>(nanos / 1'000'000'000),
                         static_cast<long>(nanos % 1'000'000'000)};
  nanosleep(&time, nullptr);
}

void NothingTwin(const simcuda_launch*, void**) {}

void RegisterTwins(void* simcuda) {
  const auto add =
      reinterpret_cast<decltype(&simcuda_register_kernel)>(dlsym(simcuda, "simcuda_register_kernel"));
  constexpr simcuda_parameter kParameters[] = {{0, 8}, {8, 8}, {16, 4}, {24, 8}};
  constexpr simcuda_parameter kMix[] = {{0, 8}, {8, 8}, {16, 8}};
  constexpr simcuda_parameter kCheck[] = {{0, 8}, {8, 8}, {16, 4}, {20, 4}, {24, 8}};
  const simcuda_kernel kernels[] = {{"spillway_fill", &FillTwin, nullptr, kParameters, 3},
                                    {"spillway_compare", &CompareTwin, nullptr, kParameters, 4},
                                    {"spillway_mix", &MixTwin, nullptr, kMix, 3},
                                    {"spillway_check", &CheckTwin, nullptr, kCheck, 5},
                                    {"spillway_add_ones", &AddOnesTwin, nullptr, kParameters, 2},
                                    {"spillway_spin", &SpinTwin, nullptr, kParameters, 1},
                                    {"spillway_nothing", &NothingTwin, nullptr, kParameters, 1}};
  for (const simcuda_kernel& kernel : kernels) {
    if (add(&kernel, nullptr) != 0) Stop(std::string("simcuda refuses the kernel ") + kernel.name);
  }
}

}  // namespace

Gpu& Gpu::Get() {
  static Gpu* const gpu = new Gpu;
  return *gpu;
}

void Gpu::Must(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return;
  if (driver_ == nullptr) Stop(absl::StrFormat("%s: CUDA error %d", what, static_cast<int>(result)));
  Stop(std::string(driver_->ToStatus(result, what).message()));
}

const char* Gpu::code() { return kKernels; }

void* Gpu::Symbol(const char* name) const { return dlsym(library_, name); }

Gpu::Gpu() {
  library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library_ == nullptr) Stop(std::string("There is no CUDA driver: ") + dlerror());
  const auto init = reinterpret_cast<decltype(&::cuInit)>(Symbol("cuInit"));
  Must(init == nullptr ? CUDA_ERROR_NOT_FOUND : init(0), "cuInit");
  void* const simcuda = FindSimcuda();
  simcuda_ = simcuda != nullptr;
  if (simcuda_) RegisterTwins(simcuda);
  auto driver = allocator::CudaDriver::Load([this](const char* symbol) { return Symbol(symbol); });
  if (!driver.ok()) Stop(std::string(driver.status().message()));
  driver_ = driver->release();
  Must(driver_->cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
  Must(driver_->cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  launch_kernel = reinterpret_cast<decltype(&::cuLaunchKernel)>(Symbol("cuLaunchKernel"));
  mem_alloc = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(Symbol("cuMemAlloc_v2"));
  mem_free = reinterpret_cast<decltype(&::cuMemFree_v2)>(Symbol("cuMemFree_v2"));
  const auto load = reinterpret_cast<decltype(&::cuModuleLoadData)>(Symbol("cuModuleLoadData"));
  const auto find = reinterpret_cast<decltype(&::cuModuleGetFunction)>(Symbol("cuModuleGetFunction"));
  CUmodule module = nullptr;
  Must(load(&module, kKernels), "loading the kernels");
  Must(find(&fill_, module, "spillway_fill"), "spillway_fill");
  Must(find(&compare_, module, "spillway_compare"), "spillway_compare");
  Must(find(&mix_, module, "spillway_mix"), "spillway_mix");
  Must(find(&check_, module, "spillway_check"), "spillway_check");
  Must(find(&add_ones_, module, "spillway_add_ones"), "spillway_add_ones");
  Must(find(&spin_, module, "spillway_spin"), "spillway_spin");
  Must(find(&nothing_, module, "spillway_nothing"), "spillway_nothing");
}

std::string Gpu::Description() const {
  char name[128] = "";
  const auto get_name = reinterpret_cast<decltype(&::cuDeviceGetName)>(Symbol("cuDeviceGetName"));
  if (get_name != nullptr) (void)get_name(name, sizeof(name), 0);
  int version = 0;
  size_t total = 0;
  (void)driver_->cuDriverGetVersion(&version);
  (void)driver_->cuDeviceTotalMem_v2(&total, 0);
  return absl::StrFormat("%s, %d MiB, driver for CUDA %d.%d", name, total >> 20, version / 1000,
                         version % 1000 / 10);
}

CUstream Gpu::NewStream() const {
  CUstream stream = nullptr;
  Must(driver_->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreateWithPriority");
  return stream;
}

void Gpu::Synchronize() const { Must(driver_->cuCtxSynchronize(), "cuCtxSynchronize"); }

void Gpu::Launch(CUfunction function, CUstream stream, std::vector<void*> parameters, uint32_t blocks) const {
  Must(launch_kernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters.data(), nullptr),
       "cuLaunchKernel");
}

void Gpu::Fill(CUstream stream, CUdeviceptr address, uint64_t bytes, uint32_t seed) const {
  uint64_t words = bytes / 4;
  Launch(fill_, stream, {&address, &words, &seed}, kMaxBlocks);
}

void Gpu::Compare(CUstream stream, CUdeviceptr address, uint64_t bytes, uint32_t seed,
                  CUdeviceptr differences) const {
  uint64_t words = bytes / 4;
  Launch(compare_, stream, {&address, &words, &seed, &differences}, kMaxBlocks);
}

void Gpu::Mix(CUstream stream, CUdeviceptr to, CUdeviceptr from, uint64_t bytes) const {
  uint64_t words = bytes / 4;
  Launch(mix_, stream, {&to, &from, &words}, kMaxBlocks);
}

void Gpu::Check(CUstream stream, CUdeviceptr address, uint64_t bytes, uint32_t slope, uint32_t offset,
                CUdeviceptr differences) const {
  uint64_t words = bytes / 4;
  Launch(check_, stream, {&address, &words, &slope, &offset, &differences}, kMaxBlocks);
}

void Gpu::AddOnes(CUstream stream, CUdeviceptr address, uint64_t bytes) const {
  uint64_t words = bytes / 4;
  Launch(add_ones_, stream, {&address, &words}, kMaxBlocks);
}

void Gpu::Spin(CUstream stream, uint64_t nanos) const { Launch(spin_, stream, {&nanos}, 1); }

void Gpu::Nothing(CUstream stream, CUdeviceptr address) const { Launch(nothing_, stream, {&address}, 1); }

// ---- Mapping

uint64_t Mapping::not_ready_ = 0;

Mapping::Mapping(uint64_t bytes, uint64_t chunk_bytes)
    : bytes_((bytes + chunk_bytes - 1) / chunk_bytes * chunk_bytes), chunk_bytes_(chunk_bytes) {
  const Gpu& gpu = Gpu::Get();
  gpu.Must(gpu.driver().cuMemAddressReserve(&reserved_, bytes_, 0, 0, 0), "cuMemAddressReserve");
  CUmemAllocationProp kind = {};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  for (uint64_t at = 0; at < bytes_; at += chunk_bytes_) {
    gpu.Must(gpu.driver().cuMemCreate(&chunks_.emplace_back(), chunk_bytes_, &kind, 0), "cuMemCreate");
  }
  Map();
}

Mapping::~Mapping() {
  const Gpu& gpu = Gpu::Get();
  if (mapped_) (void)Unmap();
  for (CUmemGenericAllocationHandle chunk : chunks_) (void)gpu.driver().cuMemRelease(chunk);
  (void)gpu.driver().cuMemAddressFree(reserved_, bytes_);
}

CUresult Mapping::Unmap() {
  const CUresult result = Gpu::Get().driver().cuMemUnmap(address_, bytes_);
  if (result == CUDA_SUCCESS) mapped_ = false;
  return result;
}

void Mapping::Map(CUdeviceptr address) {
  const Gpu& gpu = Gpu::Get();
  address_ = address != 0 ? address : reserved_;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    gpu.Must(gpu.driver().cuMemMap(address_ + i * chunk_bytes_, chunk_bytes_, 0, chunks_[i], 0), "cuMemMap");
  }
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const auto set = [&] { return gpu.driver().cuMemSetAccess(address_, bytes_, &access, 1); };
  gpu.Must(UntilReady(set, &not_ready_), "cuMemSetAccess");
  mapped_ = true;
}

// ---- HostMemory

HostMemory::HostMemory(uint64_t bytes) : bytes_(bytes) {
  data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  Gpu::Get().Must(data_ == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS, "mmap");
}

HostMemory::~HostMemory() {
  if (registered_) Unregister();
  munmap(data_, bytes_);
}

void HostMemory::Register() {
  const Gpu& gpu = Gpu::Get();
  gpu.Must(gpu.driver().cuMemHostRegister_v2(data_, bytes_, CU_MEMHOSTREGISTER_PORTABLE),
           "cuMemHostRegister");
  registered_ = true;
}

void HostMemory::Unregister() {
  Gpu::Get().Must(Gpu::Get().driver().cuMemHostUnregister(data_), "cuMemHostUnregister");
  registered_ = false;
}

}  // namespace spillway::gpu
