// A handle in host memory at an address that a device's handle had: whether it can be had, what it costs, and how fast
// kernels, the copy engine and a direct read of a file reach it.

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "tests/gpu/facts/facts.h"

namespace spillway::gpu {
namespace {

CUmemLocation HostLocation(bool numa) {
  CUmemLocation location = {};
  int node = 0;
  // Which node the GPU is at: HOST_NUMA_ID.
  (void)GPU_FUNCTION(cuDeviceGetAttribute)(&node, static_cast<CUdevice_attribute>(134), 0);
  location.type = numa ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_HOST;
  location.id = numa && node > 0 ? node : 0;
  return location;
}

// Host memory of one handle, in the place of the device's own.
class Swapped {
 public:
  explicit Swapped(uint64_t bytes) : bytes_(bytes) {
    const Gpu& gpu = Gpu::Get();
    gpu.Must(gpu.driver().cuMemAddressReserve(&address_, bytes, 0, 0, 0), "cuMemAddressReserve");
    MapNew({CU_MEM_LOCATION_TYPE_DEVICE, 0}, nullptr);
  }
  CUdeviceptr address() const { return address_; }

  // The driver's calls with their results and times. Whether the memory can be used.
  bool MapHost(bool numa, Json* calls) {
    const Clock::time_point start = Clock::now();
    (*calls)["cuMemUnmap"] = static_cast<int>(Gpu::Get().driver().cuMemUnmap(address_, bytes_));
    const bool mapped = MapNew(HostLocation(numa), calls);
    (*calls)["swap_us"] = MicrosSince(start);
    return mapped;
  }
  // Opens it to the processor.
  CUresult OpenToHost() const { return Allow({CU_MEM_LOCATION_TYPE_HOST, 0}); }

 private:
  bool MapNew(const CUmemLocation& location, Json* calls) {
    const auto& driver = Gpu::Get().driver();
    CUmemAllocationProp kind = {};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location = location;
    CUmemGenericAllocationHandle handle = 0;
    const Clock::time_point start = Clock::now();
    const CUresult created = driver.cuMemCreate(&handle, bytes_, &kind, 0);
    const double create_us = MicrosSince(start);
    const CUresult mapped =
        created == CUDA_SUCCESS ? driver.cuMemMap(address_, bytes_, 0, handle, 0) : created;
    const CUresult allowed = mapped == CUDA_SUCCESS ? Allow({CU_MEM_LOCATION_TYPE_DEVICE, 0}) : mapped;
    if (calls != nullptr) {
      calls->update({{"cuMemCreate", static_cast<int>(created)},
                     {"create_us", create_us},
                     {"cuMemMap", static_cast<int>(mapped)},
                     {"cuMemSetAccess", static_cast<int>(allowed)}});
    }
    if (created == CUDA_SUCCESS) (void)driver.cuMemRelease(handle);  // the mapping keeps it
    return allowed == CUDA_SUCCESS;
  }
  CUresult Allow(const CUmemLocation& location) const {
    CUmemAccessDesc access = {};
    access.location = location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return Gpu::Get().driver().cuMemSetAccess(address_, bytes_, &access, 1);
  }

  const uint64_t bytes_;
  CUdeviceptr address_ = 0;
};

// GB/s of the best of three rounds. The first round is not counted: pages may be made in it.
template <typename Enqueue>
double Rate(uint64_t bytes, const Enqueue& enqueue) {
  double best = 0;
  for (int round = 0; round < 4; ++round) {
    Gpu::Get().Synchronize();
    const Clock::time_point start = Clock::now();
    enqueue();
    Gpu::Get().Synchronize();
    if (round > 0) best = std::max(best, static_cast<double>(bytes) / MicrosSince(start) / 1e3);
  }
  return best;
}

Json Rates(CUdeviceptr address, uint64_t bytes) {
  const Gpu& gpu = Gpu::Get();
  const CUstream stream = gpu.NewStream();
  const auto copy = GPU_FUNCTION(cuMemcpyDtoDAsync_v2);
  const Mapping beside(bytes), counter(2 * kMiB);
  HostMemory host(bytes);
  host.Register();
  return {
      {"kernel_writes", Rate(bytes, [&] { gpu.Fill(stream, address, bytes, 3); })},
      {"kernel_reads", Rate(bytes, [&] { gpu.Compare(stream, address, bytes, 3, counter.address()); })},
      {"float_atomics", Rate(bytes, [&] { gpu.AddOnes(stream, address, bytes); })},
      {"copy_to_device", Rate(bytes, [&] { (void)copy(beside.address(), address, bytes, stream); })},
      {"copy_from_device", Rate(bytes, [&] { (void)copy(address, beside.address(), bytes, stream); })},
  };
}

// Whether a direct read of a file can go there: the error's number, 0 for none.
int DirectRead(CUdeviceptr address) {
  const char* const given = std::getenv("SPILLWAY_GPU_TEST_DIR");
  std::string path = std::string(given == nullptr ? "/var/tmp" : given) + "/spillway-facts-XXXXXX";
  const int made = mkstemp(path.data());
  if (made < 0) return errno;
  const std::string content(4096, 'd');
  const bool written = write(made, content.data(), content.size()) == static_cast<ssize_t>(content.size());
  close(made);
  const int file = written ? open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC) : -1;
  const ssize_t got = file < 0 ? -1 : pread(file, reinterpret_cast<void*>(address), content.size(), 0);
  const int error = got == static_cast<ssize_t>(content.size()) ? 0 : errno;
  if (file >= 0) close(file);
  unlink(path.c_str());
  const bool there = error != 0 || std::memcmp(reinterpret_cast<void*>(address), content.data(), 4096) == 0;
  return there ? error : EILSEQ;
}

}  // namespace

Json HostHandle(const FactSetup& setup) {
  const uint64_t bytes = (setup.small ? 8 : 256) * kMiB;
  Json metrics = {{"bytes", bytes}};
  for (const bool numa : {true, false}) {
    Swapped memory(bytes);
    Json answers = Json::object();
    if (memory.MapHost(numa, &answers)) {
      answers["gb_per_s"] = Rates(memory.address(), bytes);
      const CUresult opened = memory.OpenToHost();
      answers["host_access"] = static_cast<int>(opened);
      if (opened == CUDA_SUCCESS) answers["direct_read_errno"] = DirectRead(memory.address());
    }
    metrics[numa ? "host_numa" : "host"] = answers;
  }
  return metrics;
}

}  // namespace spillway::gpu
