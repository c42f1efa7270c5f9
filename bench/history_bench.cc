// What a fault costs by what the process has allocated and freed before, and by how many live blocks lie idle
// on the device. Each fault drives one block out to host memory and brings another back, on the stand-in
// driver; a case is timed in turn with the smallest one, and the ratio of each pair is taken; without a plan,
// and with one in force that knows when each block is used next and moves nothing itself.
//
//   history_bench [--pairs N] [--faults N] [--most N] [--json FILE]
//
// --most leaves out the cases with more freed or idle blocks.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "allocator/memory/address_map.h"
#include "allocator/residency/device_residency.h"
#include "allocator/tier/host_pool.h"
#include "bench/stand_in.h"
#include "io/os/clock.h"
#include "policy/model/plan.h"
#include "tests/command_line.h"

namespace spillway::bench {
namespace {

constexpr uint64_t kChunkBytes = 64 << 10;
constexpr size_t kAway = 64;  // blocks that are not on the device

struct Case {
  size_t old = 0;   // blocks that were allocated and freed before, each of a stream of its own that is gone
  size_t idle = 0;  // live blocks on the device
  bool planned = false;
};

class Device {
 public:
  Device(const allocator::CudaDriver* driver, CUcontext context, const Case& what) : driver_(driver) {
    addresses_ = *allocator::AddressMap::Reserve(driver, 1, uint64_t{64} << 30, kChunkBytes);
    allocator::HostPool::Options host;
    host.buffer_bytes = kChunkBytes;
    host.storage_bytes = 4 * kAway * kChunkBytes;
    host.evict_staging_buffers = host.fault_staging_buffers = 0;
    host_ = *allocator::HostPool::Create(driver, context, host);
    if (!host_->GrowStorageTo(host.storage_bytes).ok()) Die("no host memory");
    allocator::ResidencyOptions options;
    options.external_share_bytes = kChunkBytes;
    options.budget_bytes = (what.idle + 1) * kChunkBytes;
    options.free_reserve_bytes = 1;  // nothing leaves but for a fault
    allocator::ResidencyParts parts;
    parts.driver = driver;
    parts.context = context;
    parts.addresses = addresses_.get();
    parts.host = host_.get();
    residency_ = std::make_unique<allocator::DeviceResidency>(options, parts);
    if (!residency_->Start().ok()) Die("no device");
    for (size_t i = 0; i < what.old; ++i) AllocateAndFree();
    for (size_t i = 0; i < what.idle + kAway; ++i)
      blocks_.push_back(residency_->Allocate(kChunkBytes, {}).value());
    for (const CUdeviceptr block : blocks_) Use(block);
    if (what.planned) SetPlan();
  }
  ~Device() {
    Must(driver_->cuCtxSynchronize(), "cuCtxSynchronize");
    residency_->Shutdown();
  }

  // Nanoseconds for each of so many faults: each use is of the block that has been away longest.
  double Faults(size_t count) {
    const uint64_t before = residency_->Stats().faults;
    const int64_t start = os::Clock::System()->NowNanos();
    for (size_t i = 0; i < count; ++i) Use(LongestAway());
    const int64_t nanos = os::Clock::System()->NowNanos() - start;
    if (residency_->Stats().faults - before < count * 9 / 10) Die("hardly any use was a fault");
    return static_cast<double>(nanos) / static_cast<double>(count);
  }

 private:
  void AllocateAndFree() {
    CUstream stream = nullptr;
    Must(driver_->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0),
         "cuStreamCreateWithPriority");
    if (!residency_->Free(residency_->Allocate(kChunkBytes, {stream, false}).value()).ok())
      Die("a free failed");
    residency_->OnStreamDestroy(stream);
    Must(driver_->cuStreamDestroy_v2(stream), "cuStreamDestroy");
  }
  CUdeviceptr LongestAway() {
    allocator::Core* const core = residency_->core();
    const allocator::TableLock lock(core->table);
    const allocator::Block* const block = core->table.OldestLocked(lock, allocator::BlockState::kSpilled);
    if (block == nullptr) Die("no block is away");
    return block->address;
  }
  // An iteration in which each launch uses one block, all in turn.
  void SetPlan() {
    auto plan = std::make_shared<policy::MigrationPlan>();
    plan->start = residency_->log()->count();
    plan->iteration_launches = static_cast<uint32_t>(blocks_.size());
    for (uint32_t i = 0; i < plan->iteration_launches; ++i) {
      plan->uses.push_back(addresses_->Find(blocks_[i]).raw());
      plan->launches.push_back({i, 1});
    }
    residency_->SetPlan(std::move(plan));
  }
  void Use(CUdeviceptr block) {
    allocator::AccessSet set;
    addresses_->Collect(block, &set);
    Must(
        residency_->Run(set, {}, 1, [&] { return driver_->cuMemcpyHtoDAsync_v2(block, &word_, 8, nullptr); }),
        "a launch");
    Must(driver_->cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  }

  const allocator::CudaDriver* const driver_;
  std::unique_ptr<allocator::AddressMap> addresses_;
  std::unique_ptr<allocator::HostPool> host_;
  std::unique_ptr<allocator::DeviceResidency> residency_;
  std::vector<CUdeviceptr> blocks_;
  uint64_t word_ = 7;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Run(int pairs, size_t faults, size_t most, const std::string& json_file) {
  setenv("SIMCUDA_GRANULARITY", "64KiB", 1);
  const allocator::CudaDriver* const driver = OpenStandIn("4GiB");
  CUcontext context = nullptr;
  Must(driver->cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Must(driver->cuCtxSetCurrent(context), "cuCtxSetCurrent");
  nlohmann::json rows = nlohmann::json::array();
  std::printf("%8s %8s %6s %12s %8s\n", "freed", "idle", "plan", "us a fault", "ratio");
  for (const bool planned : {false, true}) {
    Device least(driver, context, {100, 100, planned});
    for (const auto& [old, idle] :
         {std::pair<size_t, size_t>{100, 100}, {10'000, 100}, {100'000, 100}, {100, 1'000}, {100, 10'000}}) {
      if (old > most || idle > most) continue;
      Device device(driver, context, {old, idle, planned});
      std::vector<double> nanos;
      std::vector<double> ratios;
      for (int pair = 0; pair < pairs; ++pair) {
        const double base = least.Faults(faults);
        nanos.push_back(device.Faults(faults));
        ratios.push_back(nanos.back() / base);
      }
      std::printf("%8zu %8zu %6s %12.1f %8.2f\n", old, idle, planned ? "yes" : "no", Median(nanos) / 1000,
                  Median(ratios));
      rows.push_back({{"freed", old},
                      {"idle", idle},
                      {"plan", planned},
                      {"ns", Median(nanos)},
                      {"ratio", Median(ratios)}});
    }
  }
  if (!json_file.empty()) std::ofstream(json_file) << rows.dump(1) << "\n";
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  std::string json_file;
  int pairs = 5;
  size_t faults = 2000;
  size_t most = 100'000;
  spillway::CommandLine line{"Cost of a fault by the history of the process and by idle blocks"};
  line.Add("--pairs", &pairs, "pairs of timings a case", 1, 1000);
  line.Add("--faults", &faults, "faults a timing");
  line.Add("--most", &most, "blocks that were freed or lie idle, in the largest case");
  line.Add("--json", &json_file, "write the figures here");
  line.Parse(argc, argv);
  spillway::bench::Run(pairs, faults, most, json_file);
  return 0;
}
