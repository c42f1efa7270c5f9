// What calls of one thread take while another thread is inside a call that waits for the GPU.

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "tests/gpu/facts/facts.h"
#include "tests/gpu/kernels.ptx.h"

namespace spillway::gpu {
namespace {

constexpr uint64_t kSpinLarge = 200'000'000;  // ns: what the GPU is busy with
constexpr uint64_t kSpinSmall = 20'000'000;
constexpr int kQueued = 1'500;        // launches; a stream's queue is said to take 1,024
constexpr unsigned kBetweenUs = 200;  // between a thread's calls, so that its own stream's queue never fills

using Micros = double;

// From when to when a thread was inside the call.
struct Inside {
  Clock::time_point from, to;
};

// One of the calls that are made meanwhile; made anew for each row.
using Call = std::function<void()>;

Call QueryEvents() {
  const Gpu& gpu = Gpu::Get();
  CUevent event = nullptr;
  const CUstream stream = gpu.NewStream();
  gpu.Must(gpu.driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  gpu.Must(gpu.driver().cuEventRecord(event, stream), "cuEventRecord");
  return [event] { (void)Gpu::Get().driver().cuEventQuery(event); };
}

Call Launches() {
  const CUstream stream = Gpu::Get().NewStream();
  return [stream] { Gpu::Get().Nothing(stream, 0); };
}

Call Remaps() {
  auto block = std::make_shared<Mapping>(2 * kMiB);
  return [block] {
    Gpu::Get().Must(block->Unmap(), "cuMemUnmap");
    block->Map();
  };
}

// Calls `call` over and over on a thread of its own, from its start to Stop.
class Caller {
 public:
  explicit Caller(Call call) : call_(std::move(call)), thread_([this] { Run(); }) {
    while (!runs_.load()) std::this_thread::yield();
  }
  // Those calls that were under way at some time of the interval.
  std::vector<Micros> Stop(const Inside& inside) {
    stop_.store(true);
    thread_.join();
    std::vector<Micros> found;
    for (const Inside& call : calls_) {
      if (call.to <= inside.from || call.from >= inside.to) continue;
      found.push_back(std::chrono::duration<Micros, std::micro>(call.to - call.from).count());
    }
    return found;
  }

 private:
  void Run() {
    const Gpu& gpu = Gpu::Get();
    gpu.Must(gpu.driver().cuCtxSetCurrent(gpu.context()), "cuCtxSetCurrent");
    call_();
    runs_.store(true);
    while (!stop_.load()) {
      const Clock::time_point from = Clock::now();
      call_();
      calls_.push_back({from, Clock::now()});
      usleep(kBetweenUs);
    }
  }
  const Call call_;
  std::vector<Inside> calls_;
  std::atomic<bool> runs_{false}, stop_{false};
  std::thread thread_;
};

Inside Timed(const Call& call) {
  Inside inside;
  inside.from = Clock::now();
  call();
  inside.to = Clock::now();
  return inside;
}

// ---- The calls that wait. Each finds the GPU busy for `spin` ns on `stream`.

Inside OnlyBusy(CUstream stream, uint64_t spin) {
  Gpu::Get().Spin(stream, spin);
  return Timed([spin] { usleep(static_cast<useconds_t>(spin / 1000)); });
}

Inside LoadModule(CUstream stream, uint64_t spin) {
  const Gpu& gpu = Gpu::Get();
  // No cache of the driver has this text.
  const std::string text =
      absl::StrFormat("%s\n// %d %d\n", kKernels, getpid(), Clock::now().time_since_epoch().count());
  CUmodule module = nullptr;
  gpu.Spin(stream, spin);
  const Inside inside =
      Timed([&] { gpu.Must(gpu.driver().cuModuleLoadData(&module, text.c_str()), "cuModuleLoadData"); });
  gpu.Must(GPU_FUNCTION(cuModuleUnload)(module), "cuModuleUnload");
  return inside;
}

Inside Unregister(CUstream stream, uint64_t spin) {
  HostMemory host(16 * kMiB);
  host.Register();
  Gpu::Get().Spin(stream, spin);
  return Timed([&] { host.Unregister(); });
}

Inside CopyToPageable(CUstream stream, uint64_t spin) {
  const Gpu& gpu = Gpu::Get();
  const Mapping device(2 * kMiB);
  HostMemory pageable(2 * kMiB);
  gpu.Spin(stream, spin);
  const Inside inside = Timed([&] {
    gpu.Must(gpu.driver().cuMemcpyDtoHAsync_v2(pageable.at(0), device.address(), 2 * kMiB, stream), "a copy");
  });
  gpu.Must(gpu.driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return inside;
}

// The launch that took longest.
Inside FillQueue(CUstream stream, uint64_t spin) {
  const Gpu& gpu = Gpu::Get();
  gpu.Spin(stream, spin);
  Inside longest;
  for (int i = 0; i < kQueued; ++i) {
    const Inside inside = Timed([&] { gpu.Nothing(stream, 0); });
    if (inside.to - inside.from > longest.to - longest.from) longest = inside;
  }
  return longest;
}

constexpr std::pair<const char*, Inside (*)(CUstream, uint64_t)> kWaits[] = {
    {"none", &OnlyBusy},
    {"cuModuleLoadData", &LoadModule},
    {"cuMemHostUnregister", &Unregister},
    {"pageable copy", &CopyToPageable},
    {"launch on a full queue", &FillQueue}};
constexpr std::pair<const char*, Call (*)()> kCalls[] = {
    {"cuEventQuery", &QueryEvents}, {"cuLaunchKernel", &Launches}, {"remap", &Remaps}};

}  // namespace

std::vector<std::string> StallCases() {
  std::vector<std::string> cases;
  for (const auto& wait : kWaits) cases.emplace_back(wait.first);
  return cases;
}

Json Stalls(const FactSetup& setup) {
  const Gpu& gpu = Gpu::Get();
  const uint64_t spin = setup.small ? kSpinSmall : kSpinLarge;
  const CUstream stream = gpu.NewStream();
  for (const auto& [name, wait] : kWaits) {
    if (setup.variant != name) continue;
    Json metrics = {{"busy_us", static_cast<double>(spin) / 1e3}};
    for (const auto& [called, make] : kCalls) {
      gpu.Synchronize();
      Caller caller(make());
      const Inside inside = wait(stream, spin);
      const std::vector<Micros> micros = caller.Stop(inside);
      metrics[called] = {
          {"inside_us", std::chrono::duration<Micros, std::micro>(inside.to - inside.from).count()},
          {"calls", micros.size()},
          {"p50_us", Quantile(micros, 0.5)},
          {"p99_us", Quantile(micros, 0.99)},
          {"longest_us", Quantile(micros, 1.0)}};
      gpu.Synchronize();
    }
    return metrics;
  }
  return {{"missing", setup.variant}};
}

}  // namespace spillway::gpu
