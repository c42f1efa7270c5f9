// What a launch costs beside other work, and what loading code costs.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

#include "tests/gpu/facts/facts.h"
#include "tests/gpu/kernels.ptx.h"

namespace spillway::gpu {
namespace {

Json Quantiles(const std::vector<double>& micros) {
  return {{"launches", micros.size()},
          {"p50_us", Quantile(micros, 0.5)},
          {"p99_us", Quantile(micros, 0.99)},
          {"p99_9_us", Quantile(micros, 0.999)},
          {"longest_us", Quantile(micros, 1.0)}};
}

// Each launch by itself: from the call to its return. The stream is drained now and then, so that its queue
// never makes a launch wait. Fewer than `count` after `seconds`: launches may wait for a lock.
std::vector<double> TimeLaunches(int count, double seconds) {
  const Gpu& gpu = Gpu::Get();
  static const CUstream stream = gpu.NewStream();
  std::vector<double> micros;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < count && MicrosSince(begin) < seconds * 1e6; ++i) {
    const Clock::time_point start = Clock::now();
    gpu.Nothing(stream, 0);
    micros.push_back(MicrosSince(start));
    if (i % 100 == 99) gpu.Must(gpu.driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  return micros;
}

// A thread that keeps one stream full of kernels that write memory, at the rate of the memory.
class MemoryBound {
 public:
  explicit MemoryBound(uint64_t bytes) : memory_(bytes), thread_([this] { Run(); }) {}
  ~MemoryBound() {
    stop_.store(true);
    thread_.join();
    Gpu::Get().Synchronize();
  }

 private:
  void Run() {
    const Gpu& gpu = Gpu::Get();
    gpu.Must(gpu.driver().cuCtxSetCurrent(gpu.context()), "cuCtxSetCurrent");
    const CUstream stream = gpu.NewStream();
    for (uint32_t round = 0; !stop_.load(); ++round) {
      for (int i = 0; i < 4; ++i) gpu.Fill(stream, memory_.address(), memory_.bytes(), round);
      gpu.Must(gpu.driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
  }
  Mapping memory_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A thread that maps and unmaps one block over and over, in handles of one size.
class Remapping {
 public:
  Remapping(uint64_t bytes, uint64_t handle) : block_(bytes, handle), thread_([this] { Run(); }) {}
  ~Remapping() {
    stop_.store(true);
    thread_.join();
  }
  uint64_t rounds() const { return rounds_.load(); }

 private:
  void Run() {
    const Gpu& gpu = Gpu::Get();
    gpu.Must(gpu.driver().cuCtxSetCurrent(gpu.context()), "cuCtxSetCurrent");
    while (!stop_.load()) {
      gpu.Must(block_.Unmap(), "cuMemUnmap");
      block_.Map();
      rounds_.fetch_add(1);
    }
  }
  Mapping block_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> rounds_{0};
  std::thread thread_;
};

}  // namespace

double Quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(part * static_cast<double>(values.size())))];
}

Json LaunchLatency(const FactSetup& setup) {
  const int count = setup.small ? 2'000 : 20'000;
  const uint64_t memory = (setup.small ? 8 : 512) * kMiB;
  (void)TimeLaunches(200, setup.row_seconds);
  Json rows = Json::array();
  const auto row = [&](bool busy, uint64_t handle, uint64_t bytes) {
    std::unique_ptr<MemoryBound> kernel = busy ? std::make_unique<MemoryBound>(memory) : nullptr;
    std::unique_ptr<Remapping> remapping = handle != 0 ? std::make_unique<Remapping>(bytes, handle) : nullptr;
    const Clock::time_point start = Clock::now();
    Json metrics = Quantiles(TimeLaunches(count, setup.row_seconds));
    const double seconds = MicrosSince(start) / 1e6;
    metrics["launches_wanted"] = count;
    metrics["memory_bound_kernel"] = busy;
    metrics["remapped_bytes"] = bytes;
    metrics["handle_bytes"] = handle;
    metrics["remaps_per_second"] =
        remapping == nullptr ? 0.0 : static_cast<double>(remapping->rounds()) / seconds;
    rows.push_back(metrics);
  };
  for (const bool busy : {false, true}) {
    row(busy, 0, 0);
    for (const uint64_t handle : {2 * kMiB, 16 * kMiB, 64 * kMiB}) {
      row(busy, handle, (setup.small ? 1 : 4) * std::max(handle, 16 * kMiB));
    }
  }
  return {{"rows", rows}};
}

Json ModuleLoading(const FactSetup& setup) {
  const Gpu& gpu = Gpu::Get();
  const auto load = reinterpret_cast<decltype(&::cuModuleLoadData)>(gpu.Symbol("cuModuleLoadData"));
  const auto find = reinterpret_cast<decltype(&::cuModuleGetFunction)>(gpu.Symbol("cuModuleGetFunction"));
  const CUstream busy = gpu.NewStream(), other = gpu.NewStream();
  const uint64_t spin = setup.small ? 20'000'000 : 200'000'000;
  const char* const mode = std::getenv("CUDA_MODULE_LOADING");
  Json rows = Json::array();
  for (const bool while_busy : {false, true}) {
    gpu.Synchronize();
    if (while_busy) gpu.Spin(busy, spin);
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    uint64_t address = 0;
    void* parameters[] = {&address};
    Clock::time_point start = Clock::now();
    gpu.Must(load(&module, kKernels), "cuModuleLoadData");
    const double loading = MicrosSince(start);
    start = Clock::now();
    gpu.Must(find(&function, module, "spillway_nothing"), "cuModuleGetFunction");
    const double finding = MicrosSince(start);
    start = Clock::now();
    gpu.Must(gpu.launch_kernel(function, 1, 1, 1, 32, 1, 1, 0, other, parameters, nullptr), "cuLaunchKernel");
    const double launching = MicrosSince(start);
    rows.push_back({{"device_busy", while_busy},
                    {"load_us", loading},
                    {"find_us", finding},
                    {"first_launch_us", launching}});
    gpu.Synchronize();
  }
  return {{"mode", mode == nullptr ? "default" : mode},
          {"busy_us", static_cast<double>(spin) / 1e3},
          {"rows", rows}};
}

}  // namespace spillway::gpu
