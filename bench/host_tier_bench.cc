// How long it takes until the first bytes of a new host tier are out of the GPU, on a machine that pins slowly: the pool
// pins its slabs while a stream copies into those that are there. Once the pool gives its slabs their pages before it
// registers them, once the driver does so inside the call, as on a kernel that cannot (before 5.14). Beside each the same
// copies once all is pinned, as the limit. The machine is one that simcuda has the costs of, with others for a
// registration, for pages and for the link. Making pages takes time and no memory.
//
//   host_tier_bench [--gib 2] [--register-ms 10] [--pages 4] [--processors 16] [--link 4] [--slab 32] [--scale 20]
//                   [--rounds 1] [--like h100] [--json FILE]

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "allocator/tier/host_pool.h"
#include "bench/stand_in.h"
#include "tests/command_line.h"
#include "tests/fakes/hardware_stand_in.h"

namespace spillway::bench {
namespace {

// The machine as the code of this program sees it.
struct Kernel {
  bool makes_pages = true;    // knows the request to make pages
  double pages_gb_per_s = 0;  // of one thread; 0: at no cost
  unsigned processors = 0;
};
Kernel g_kernel;

}  // namespace
}  // namespace spillway::bench

// In place of the library's, by the linker. Pages are made of zeros, and take the machine's time.
extern "C" int __real_madvise(void* start, size_t bytes, int advice);
extern "C" int __wrap_madvise(void* start, size_t bytes, int advice) {
  const spillway::bench::Kernel& kernel = spillway::bench::g_kernel;
  if (advice != MADV_POPULATE_WRITE) return __real_madvise(start, bytes, advice);
  if (!kernel.makes_pages) {
    errno = EINVAL;
    return -1;
  }
  const auto start_time = std::chrono::steady_clock::now();
  const int result = __real_madvise(start, bytes, MADV_POPULATE_READ);
  if (kernel.pages_gb_per_s > 0) {
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / kernel.pages_gb_per_s / 1e9);
    std::this_thread::sleep_until(start_time + std::chrono::duration_cast<std::chrono::nanoseconds>(takes));
  }
  return result;
}
// std::thread::hardware_concurrency.
extern "C" unsigned __wrap__ZNSt6thread20hardware_concurrencyEv() {
  return spillway::bench::g_kernel.processors;
}

namespace spillway::bench {
namespace {

using allocator::HostPool;
using allocator::HostUse;
using allocator::PinnedBuffer;

constexpr uint64_t kMiB = 1 << 20;
constexpr double kGiB = 1 << 30;
constexpr uint64_t kChunk = 2 * kMiB;
constexpr size_t kAtOnce = 64;  // chunks that are asked for, as an eviction does

struct Arguments {
  uint64_t gib = 2;
  double register_ms = 10;
  double pages = 4;
  uint64_t processors = 16;
  double link = 4;
  uint64_t slab_mib = 32;
  uint64_t rounds = 1;
  double scale = 20;
  std::string like = "h100";
  std::string json_file;
};

struct Metrics {
  const char* pages_by = "";
  double out_seconds = 0;   // until all bytes are out, from nothing pinned
  double copy_seconds = 0;  // the same copies with all memory pinned
  double longest_call_us = 0;
  double lock_share = 0;  // of the first time
};

nlohmann::json Value(double value) { return {{"value", value}, {"source", "the command line"}}; }

// The profile of `like` with the costs of the command line, as a file.
std::string WriteProfile(const Arguments& arguments) {
  const std::filesystem::path shipped = std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                                        "../lib/simcuda/hardware" / (arguments.like + ".json");
  std::ifstream in(shipped);
  if (!in) Die("no profile " + shipped.string());
  nlohmann::json profile = nlohmann::json::parse(in);
  nlohmann::json& pin = profile["calls"]["cuMemHostRegister"];
  pin["call_us"] = Value(arguments.register_ms * 1e3);
  pin["gib_us"] = Value(0);
  if (arguments.pages > 0) pin["empty_gib_us"] = Value(kGiB / arguments.pages / 1e3);
  for (const char* const way : {"in", "out"}) {
    for (const char* const rate : {"alone_gb_per_s", "both_gb_per_s"})
      profile["copies"][way][rate] = Value(arguments.link);
  }
  const std::string path = "/tmp/host_tier_bench_" + std::to_string(::getpid()) + ".json";
  std::ofstream(path) << profile;
  return path;
}

class Bench {
 public:
  explicit Bench(const Arguments& arguments)
      : driver_(OpenStandIn("1GiB")),
        bytes_(arguments.gib << 30),
        slab_bytes_(arguments.slab_mib * kMiB),
        scale_(arguments.scale),
        profile_(WriteProfile(arguments)) {
    Must(driver_->cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    Must(driver_->cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    machine_ = std::make_unique<fakes::HardwareStandIn>();
    Must(machine_->mem_alloc(&source_, kChunk), "cuMemAlloc");
    Must(driver_->cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), "making a stream");
  }
  ~Bench() { std::filesystem::remove(profile_); }

  Metrics Measure() {
    machine_->Become({profile_, "high", "wait", scale_});
    auto made = HostPool::Create(driver_, context_,
                                 {.storage_bytes = bytes_,
                                  .evict_staging_buffers = 0,
                                  .fault_staging_buffers = 0,
                                  .slab_bytes = slab_bytes_});
    if (!made.ok()) Die(made.status().ToString());
    const std::unique_ptr<HostPool> pool = *std::move(made);
    machine_->ResetStats();
    Metrics metrics;
    std::vector<PinnedBuffer> buffers;
    metrics.out_seconds = Seconds([&] { CopyOut(pool.get(), &buffers); });
    const simcuda_hardware_stats stats = machine_->Stats();
    metrics.longest_call_us = static_cast<double>(stats.longest_memory_call_ns) / 1e3 / scale_;
    metrics.lock_share = static_cast<double>(stats.memory_lock_ns) / 1e9 / scale_ / metrics.out_seconds;
    metrics.copy_seconds = Seconds([&] { CopyTo(buffers, 0); });
    machine_->Become({});
    return metrics;
  }

 private:
  template <typename Work>
  double Seconds(const Work& work) const {
    const auto start = std::chrono::steady_clock::now();
    work();
    Must(driver_->cuStreamSynchronize(stream_), "cuStreamSynchronize");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / scale_;
  }
  void CopyTo(const std::vector<PinnedBuffer>& buffers, size_t from) const {
    for (size_t i = from; i < buffers.size(); ++i)
      Must(driver_->cuMemcpyDtoHAsync_v2(buffers[i].data, source_, kChunk, stream_), "a copy from the GPU");
  }
  void CopyOut(HostPool* pool, std::vector<PinnedBuffer>* buffers) const {
    const size_t chunks = bytes_ / kChunk;
    while (buffers->size() < chunks) {
      const size_t before = buffers->size();
      if (pool->Take(HostUse::kStorage, std::min(kAtOnce, chunks - before), buffers) == 0) {
        const absl::Status grown = pool->GrowStorageTo((before + 1) * kChunk);
        if (!grown.ok()) Die(grown.ToString());
      }
      CopyTo(*buffers, before);
    }
  }

  const allocator::CudaDriver* const driver_;
  const uint64_t bytes_;
  const uint64_t slab_bytes_;
  const double scale_;
  const std::string profile_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr source_ = 0;
  std::unique_ptr<fakes::HardwareStandIn> machine_;
};

Metrics Measure(const Arguments& arguments, bool kernel_makes_pages) {
  g_kernel = {kernel_makes_pages, arguments.pages / arguments.scale,
              static_cast<unsigned>(arguments.processors)};
  Metrics metrics = Bench(arguments).Measure();
  metrics.pages_by = kernel_makes_pages ? "the pool" : "the driver";
  std::printf("%10s %7.2f %7.2f %10.1f %6.2f\n", metrics.pages_by, metrics.out_seconds, metrics.copy_seconds,
              metrics.longest_call_us / 1e3, metrics.lock_share);
  std::fflush(stdout);
  return metrics;
}

void Run(const Arguments& arguments) {
  std::printf("%d GiB, slabs of %d MiB, %.1f ms a registration, %.1f GB/s for pages, %d processors\n",
              static_cast<int>(arguments.gib), static_cast<int>(arguments.slab_mib), arguments.register_ms,
              arguments.pages, static_cast<int>(arguments.processors));
  std::printf("%10s %7s %7s %10s %6s\n", "pages by", "out s", "copy s", "longest ms", "lock");
  nlohmann::json runs = nlohmann::json::array();
  for (uint64_t i = 0; i < 2 * arguments.rounds; ++i) {
    const Metrics metrics = Measure(arguments, i % 4 == 1 || i % 4 == 2);  // before, after, after, before
    runs.push_back({{"pages_by", metrics.pages_by},
                    {"out_seconds", metrics.out_seconds},
                    {"copy_seconds", metrics.copy_seconds},
                    {"longest_memory_call_us", metrics.longest_call_us},
                    {"memory_lock_share", metrics.lock_share}});
  }
  const nlohmann::json report = {{"gib", arguments.gib},
                                 {"slab_mib", arguments.slab_mib},
                                 {"register_ms", arguments.register_ms},
                                 {"pages_gb_per_s", arguments.pages},
                                 {"processors", arguments.processors},
                                 {"link_gb_per_s", arguments.link},
                                 {"runs", runs}};
  if (!arguments.json_file.empty()) std::ofstream(arguments.json_file) << report.dump(1) << "\n";
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  spillway::bench::Arguments arguments;
  spillway::CommandLine line{"The first bytes into a host tier that is pinned meanwhile"};
  line.Add("--gib", &arguments.gib, "size of the host tier; as much memory of this machine is used");
  line.Add("--register-ms", &arguments.register_ms, "of one registration");
  line.Add("--pages", &arguments.pages, "GB/s at which one thread makes pages; 0: at no cost");
  line.Add("--processors", &arguments.processors,
           "of the machine: the pool uses a quarter of them for pages, at most 4");
  line.Add("--link", &arguments.link, "GB/s of each direction");
  line.Add("--slab", &arguments.slab_mib, "MiB that are pinned at a time");
  line.Add("--scale", &arguments.scale, "all times are so many times as long, and given as if they were not");
  line.Add("--rounds", &arguments.rounds, "of both ways");
  line.Add("--like", &arguments.like, "profile that all other costs are taken from");
  line.Add("--json", &arguments.json_file, "write the figures here");
  line.Parse(argc, argv);
  spillway::bench::Run(arguments);
  return 0;
}
