// How fast blocks leave the device and come back, through the whole of the memory core on the stand-in
// driver, next to the limit of each tier measured in the same run: plain O_DIRECT reads and writes of one
// file on the same file system for the disk, memcpy for host memory. Every block's first word is written
// before it leaves and read when it is back.
//
//   motion_bench [--dir DIRECTORY] [--rounds N] [--json FILE]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "allocator/memory/address_map.h"
#include "allocator/residency/residency.h"
#include "allocator/tier/host_pool.h"
#include "bench/plain_file.h"
#include "bench/stand_in.h"
#include "io/os/clock.h"
#include "io/store/spill_store.h"
#include "tests/command_line.h"

namespace spillway::bench {
namespace {

using allocator::CudaDriver;

constexpr uint64_t kChunkBytes = 2 << 20;
constexpr uint64_t kBlockBytes = 16 << 20;
constexpr size_t kSetBlocks = 2;       // of one launch
constexpr size_t kFittingBlocks = 16;  // on the device
constexpr size_t kSpillBlocks = 48;    // beyond it
constexpr uint64_t kPlainBytes = kSpillBlocks * kBlockBytes;

// One device with one tier.
class Device {
 public:
  Device(const CudaDriver* driver, CUcontext context, const std::string& directory) : driver_(driver) {
    const bool disk = !directory.empty();
    addresses_ = *allocator::AddressMap::Reserve(driver, 1, uint64_t{4} << 30, kChunkBytes);
    allocator::HostPool::Options host;
    host.buffer_bytes = kChunkBytes;
    host.storage_bytes = disk ? 0 : (kSpillBlocks + 2 * kSetBlocks) * kBlockBytes;
    if (!disk) host.evict_staging_buffers = host.fault_staging_buffers = 0;
    host_ = *allocator::HostPool::Create(driver, context, host);
    allocator::ResidencyOptions options;
    options.budget_bytes = kFittingBlocks * kBlockBytes + (32 << 20);
    options.external_share_bytes = 32 << 20;
    allocator::ResidencyParts parts;
    parts.driver = driver;
    parts.context = context;
    parts.addresses = addresses_.get();
    parts.host = host_.get();
    if (disk) {
      io::SpillStoreOptions store;
      store.directories = {io::SpillDirectory{directory, 0}};
      store.disk_reserve_bytes = 1;
      store.allow_any_file_system = true;
      auto made = io::SpillStore::Create(store);
      if (!made.ok()) Die(made.status().ToString());
      disk_ = *std::move(made);
      parts.disk = disk_.get();
    }
    residency_ = *allocator::Residency::Create(options, parts);
  }
  ~Device() {
    Must(driver_->cuCtxSynchronize(), "cuCtxSynchronize");
    residency_->Shutdown();
    if (disk_ != nullptr) disk_->Shutdown();
  }

  CUdeviceptr Allocate() { return residency_->Allocate(kBlockBytes, {}).value(); }
  void Free(CUdeviceptr block) {
    if (!residency_->Free(block).ok()) Die("a free failed");
  }
  allocator::ResidencyStats Stats() const { return residency_->Stats(); }

  // One launch that names kSetBlocks blocks from `first` on: writes or reads the first word of each.
  void Launch(const std::vector<CUdeviceptr>& blocks, size_t first, bool write) {
    allocator::AccessSet set;
    for (size_t i = 0; i < kSetBlocks; ++i) addresses_->Collect(blocks[first + i], &set);
    uint64_t words[kSetBlocks] = {};
    const CUresult result = residency_->Run(set, {}, 1, [&] {
      for (size_t i = 0; i < kSetBlocks; ++i) {
        const CUdeviceptr block = blocks[first + i];
        words[i] = write ? block ^ kMark : 0;
        const CUresult copied = write ? driver_->cuMemcpyHtoDAsync_v2(block, &words[i], 8, nullptr)
                                      : driver_->cuMemcpyDtoHAsync_v2(&words[i], block, 8, nullptr);
        if (copied != CUDA_SUCCESS) return copied;
      }
      return CUDA_SUCCESS;
    });
    Must(result, "a launch");
    Must(driver_->cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    for (size_t i = 0; i < kSetBlocks && !write; ++i) {
      if (words[i] != (blocks[first + i] ^ kMark)) Die("a block came back with other bytes");
    }
  }

 private:
  static constexpr uint64_t kMark = 0x5a5a000000000000;
  const CudaDriver* const driver_;
  std::unique_ptr<allocator::AddressMap> addresses_;
  std::unique_ptr<allocator::HostPool> host_;
  std::unique_ptr<io::SpillStore> disk_;
  std::unique_ptr<allocator::Residency> residency_;
};

// GB/s of what `body` moves, by the device's own count.
template <typename Body>
double Rate(Device* device, uint64_t allocator::ResidencyStats::*moved, Body body) {
  const uint64_t before = device->Stats().*moved;
  const int64_t start = os::Clock::System()->NowNanos();
  body();
  const int64_t nanos = os::Clock::System()->NowNanos() - start;
  const uint64_t bytes = device->Stats().*moved - before;
  if (bytes < kSetBlocks * kBlockBytes) Die("hardly anything was moved");
  return static_cast<double>(bytes) / static_cast<double>(nanos);
}

using Rates = std::map<std::string, std::vector<double>>;

// Out: blocks are used one after the other until most have left. In: the device is emptied by frees, then as
// many as fit come back. Exchange: each set that comes in drives another out.
void MeasureTier(Device* device, const std::string& tier, Rates* rates) {
  std::vector<CUdeviceptr> blocks;
  for (size_t i = 0; i < kFittingBlocks + kSpillBlocks; ++i) blocks.push_back(device->Allocate());
  const auto use = [&](size_t from, size_t to, bool write) {
    for (size_t i = from; i < to; i += kSetBlocks) device->Launch(blocks, i, write);
  };
  use(0, kFittingBlocks, true);
  (*rates)[tier + " out"].push_back(Rate(device, &allocator::ResidencyStats::spilled_bytes,
                                         [&] { use(kFittingBlocks, blocks.size(), true); }));
  (*rates)[tier + " exchange"].push_back(
      Rate(device, &allocator::ResidencyStats::fetched_bytes, [&] { use(0, kSpillBlocks, false); }));
  // What was used last is on the device: after the exchange the blocks before kSpillBlocks.
  for (size_t i = kSpillBlocks - kFittingBlocks; i < kSpillBlocks; ++i) device->Free(blocks[i]);
  (*rates)[tier + " in"].push_back(Rate(device, &allocator::ResidencyStats::fetched_bytes,
                                        [&] { use(0, kFittingBlocks - 2 * kSetBlocks, false); }));
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i < kSpillBlocks - kFittingBlocks || i >= kSpillBlocks) device->Free(blocks[i]);
  }
}

double MemcpyRate(io::AlignedBuffer* from, io::AlignedBuffer* to) {
  const int64_t start = os::Clock::System()->NowNanos();
  uint64_t bytes = 0;
  for (; bytes < kPlainBytes; bytes += kChunkBytes) {
    std::memcpy(to->data() + bytes % to->size(), from->data() + bytes % from->size(), kChunkBytes);
  }
  return static_cast<double>(bytes) / static_cast<double>(os::Clock::System()->NowNanos() - start);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Line {
  const char* what;
  const char* limit;
};
// An exchange moves each byte in and another out: half of what one direction alone could do is its limit at
// best.
constexpr Line kLines[] = {{"disk out", "plain write"},     {"disk in", "plain read"},
                           {"disk exchange", "plain read"}, {"host out", "memcpy"},
                           {"host in", "memcpy"},           {"host exchange", "memcpy"}};

void Run(const std::string& directory, int rounds, const std::string& json_file) {
  const CudaDriver* const driver = OpenStandIn("1GiB");
  CUcontext context = nullptr;
  Must(driver->cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Must(driver->cuCtxSetCurrent(context), "cuCtxSetCurrent");
  io::AlignedBuffer from(64u << 20);
  io::AlignedBuffer to(64u << 20);
  std::memset(from.data(), 1, from.size());
  std::memset(to.data(), 2, to.size());
  PlainFile plain(directory, kPlainBytes);
  plain.Transfer(true, &from);  // fills the preallocated blocks
  Device disk(driver, context, directory);
  Device host(driver, context, "");
  Rates rates;
  for (int round = 0; round < rounds; ++round) {
    rates["plain write"].push_back(plain.Transfer(true, &from));
    rates["plain read"].push_back(plain.Transfer(false, &to));
    MeasureTier(&disk, "disk", &rates);
    rates["memcpy"].push_back(MemcpyRate(&from, &to));
    MeasureTier(&host, "host", &rates);
  }
  nlohmann::json rows = nlohmann::json::array();
  std::printf("%-14s %8s %14s %8s %8s\n", "", "GB/s", "limit", "GB/s", "ratio");
  for (const Line& line : kLines) {
    const double rate = Median(rates[line.what]);
    const double limit = Median(rates[line.limit]);
    std::printf("%-14s %8.2f %14s %8.2f %8.2f\n", line.what, rate, line.limit, limit, rate / limit);
    rows.push_back({{"what", line.what},
                    {"gb_per_s", rate},
                    {"limit", line.limit},
                    {"limit_gb_per_s", limit},
                    {"ratio", rate / limit}});
  }
  if (!json_file.empty()) std::ofstream(json_file) << rows.dump(1) << "\n";
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  std::string directory = "/var/tmp";
  std::string json_file;
  int rounds = 5;
  spillway::CommandLine line{"Throughput of evictions and faults next to plain transfers"};
  line.Add("--dir", &directory, "a directory on the disk to measure");
  line.Add("--rounds", &rounds, "rounds; medians are printed", 1, 1000);
  line.Add("--json", &json_file, "write the figures here");
  line.Parse(argc, argv);
  spillway::bench::Run(directory, rounds, json_file);
  return 0;
}
