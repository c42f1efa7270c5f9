// The memory core on the device that is there, without PyTorch: blocks of four times the budget, filled,
// exchanged and compared by kernels on two streams, through the host tier and the disk. Every word is
// compared on the device.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "allocator/driver/device_hash.h"
#include "allocator/memory/address_map.h"
#include "allocator/residency/residency.h"
#include "allocator/tier/host_pool.h"
#include "io/store/spill_store.h"
#include "tests/gpu/gpu.h"

namespace spillway::gpu {
namespace {

using allocator::AccessSet;
using allocator::AddressMap;
using allocator::HostPool;
using allocator::Residency;

// The size of a block; a run on simcuda takes a small one.
uint64_t BlockBytes() { return Gpu::Get().is_simcuda() ? uint64_t{2} << 20 : uint64_t{32} << 20; }

constexpr int kBlocks = 32;
constexpr int kRounds = 4;

const char* SpillDirectory() {
  const char* const given = std::getenv("SPILLWAY_GPU_TEST_DIR");
  return given != nullptr ? given : "/var/tmp";
}

struct Core {
  std::unique_ptr<AddressMap> addresses;
  std::unique_ptr<HostPool> host;
  std::unique_ptr<io::SpillStore> disk;
  std::unique_ptr<allocator::HashCode> hash_code;  // where evictions are soft, which needs it
  std::unique_ptr<Residency> residency;
};

template <typename T>
T Value(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    std::exit(2);
  }
  return *std::move(result);
}

// A quarter of all blocks fits the GPU; half of the rest goes to host memory when there is a disk.
Core Build(bool disk, const allocator::HostReach& reach = {}, bool soft = false) {
  Gpu& gpu = Gpu::Get();
  const uint64_t all = kBlocks * BlockBytes();
  Core core;
  core.addresses = Value(AddressMap::Reserve(&gpu.driver(), 1, uint64_t{16} << 30, uint64_t{2} << 20));
  HostPool::Options host;
  host.storage_bytes = disk ? all * 3 / 8 : all * 5 / 4;
  host.reach = reach;
  if (!disk) host.evict_staging_buffers = host.fault_staging_buffers = 0;
  core.host = Value(HostPool::Create(&gpu.driver(), gpu.context(), host));
  if (disk) {
    io::SpillStoreOptions options;
    options.directories = {{SpillDirectory(), all * 2}};
    options.disk_reserve_bytes = uint64_t{1} << 30;  // also where the disk is nearly full
    core.disk = Value(io::SpillStore::Create(options));
  }
  allocator::ResidencyOptions options;
  options.budget_bytes = all / 4 + (uint64_t{16} << 20);
  options.soft_evictions = soft;
  allocator::ResidencyParts parts;
  parts.driver = &gpu.driver();
  parts.context = gpu.context();
  parts.addresses = core.addresses.get();
  parts.host = core.host.get();
  parts.disk = core.disk.get();
  if (soft) core.hash_code = std::make_unique<allocator::PtxHashCode>();
  parts.hash_code = core.hash_code.get();
  core.residency = Value(Residency::Create(options, parts));
  return core;
}

void End(Core* core, const std::vector<CUdeviceptr>& blocks) {
  for (CUdeviceptr block : blocks) EXPECT_TRUE(core->residency->Free(block).ok());
  core->residency->Shutdown();
  if (core->disk != nullptr) core->disk->Shutdown();
}

// Differing words that kernels have counted.
class WordCounter {
 public:
  WordCounter() {
    const Gpu& gpu = Gpu::Get();
    gpu.Must(gpu.mem_alloc(&address_, 4), "cuMemAlloc");
    uint32_t none = 0;
    gpu.Must(gpu.driver().cuMemcpyHtoDAsync_v2(address_, &none, 4, nullptr), "copying the counter");
    gpu.Synchronize();
  }
  ~WordCounter() { Gpu::Get().Must(Gpu::Get().mem_free(address_), "cuMemFree"); }
  CUdeviceptr address() const { return address_; }
  uint32_t Count() const {
    const Gpu& gpu = Gpu::Get();
    uint32_t count = 0;
    gpu.Synchronize();
    gpu.Must(gpu.driver().cuMemcpyDtoHAsync_v2(&count, address_, 4, nullptr), "copying the counter");
    gpu.Synchronize();
    return count;
  }

 private:
  CUdeviceptr address_ = 0;
};

class ResidencyTest : public testing::TestWithParam<bool> {};

TEST_P(ResidencyTest, FourTimesTheBudgetKeepsEveryWord) {
  Gpu& gpu = Gpu::Get();
  Core core = Build(GetParam());
  const CUstream streams[] = {gpu.NewStream(), gpu.NewStream()};
  const WordCounter differences;
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < kBlocks; ++i) {
    blocks.push_back(Value(core.residency->Allocate(BlockBytes(), {streams[i % 2], false})));
  }
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      const CUstream stream = streams[i % 2];
      AccessSet set;
      core.addresses->Collect(blocks[i], &set);
      const CUresult result = core.residency->Run(set, {stream, false}, 1, [&] {
        if (round > 0)
          gpu.Compare(stream, blocks[i], BlockBytes(), (round - 1) * kBlocks + i, differences.address());
        gpu.Fill(stream, blocks[i], BlockBytes(), round * kBlocks + i);
        return CUDA_SUCCESS;
      });
      ASSERT_EQ(result, CUDA_SUCCESS) << core.residency->LastError();
    }
  }
  EXPECT_EQ(differences.Count(), 0u);
  const allocator::ResidencyStats stats = core.residency->Stats();
  EXPECT_GT(stats.evictions, 0u);
  EXPECT_LE(stats.peak_chunk_bytes, stats.budget_bytes);
  End(&core, blocks);
}

TEST(ReachTest, ALaunchOfMoreThanTheBudgetReachesHostMemory) {
  Gpu& gpu = Gpu::Get();
  const allocator::HostReach reach = Value(allocator::FindHostReach(&gpu.driver(), 1));
  if (reach.devices.empty()) GTEST_SKIP() << "the device reaches no handles in host memory";
  const absl::Status tried = allocator::TryHostReach(&gpu.driver(), gpu.context(), reach, uint64_t{2} << 20);
  ASSERT_TRUE(tried.ok()) << tried;
  Core core = Build(/*disk=*/false, reach);
  const CUstream stream = gpu.NewStream();
  const WordCounter differences;
  std::vector<CUdeviceptr> blocks;
  AccessSet set;
  for (int i = 0; i < kBlocks; ++i) {  // twice the budget and more
    blocks.push_back(Value(core.residency->Allocate(BlockBytes(), {stream, false})));
    core.addresses->Collect(blocks.back(), &set);
  }
  for (int round = 0; round < kRounds; ++round) {
    const CUresult result = core.residency->Run(set, {stream, false}, 1, [&] {
      for (int i = 0; i < kBlocks; ++i) {
        if (round > 0)
          gpu.Compare(stream, blocks[i], BlockBytes(), (round - 1) * kBlocks + i, differences.address());
        gpu.Fill(stream, blocks[i], BlockBytes(), round * kBlocks + i);
      }
      return CUDA_SUCCESS;
    });
    ASSERT_EQ(result, CUDA_SUCCESS) << core.residency->LastError();
  }
  EXPECT_EQ(differences.Count(), 0u);
  const allocator::ResidencyStats stats = core.residency->Stats();
  EXPECT_EQ(stats.reached_launches, static_cast<uint64_t>(kRounds));
  EXPECT_LE(stats.peak_chunk_bytes, stats.budget_bytes);
  End(&core, blocks);
}

// Kernels find what has left where it lies, and what they write there counts.
TEST(ReachTest, AKernelThatNamesNothingUsesWhatHasLeft) {
  Gpu& gpu = Gpu::Get();
  const allocator::HostReach reach = Value(allocator::FindHostReach(&gpu.driver(), 1));
  if (reach.devices.empty()) GTEST_SKIP() << "the device reaches no handles in host memory";
  Core core = Build(/*disk=*/false, reach, /*soft=*/true);
  const CUstream stream = gpu.NewStream();
  const WordCounter differences;
  std::vector<CUdeviceptr> blocks;
  std::vector<AccessSet> sets(kBlocks);
  for (int i = 0; i < kBlocks; ++i) {
    blocks.push_back(Value(core.residency->Allocate(BlockBytes(), {stream, false})));
    core.addresses->Collect(blocks.back(), &sets[i]);
  }
  int round = 0;
  const auto step = [&](const AccessSet& set, int block) {
    ASSERT_EQ(core.residency->Run(set, {stream, false}, 1,
                                  [&] {
                                    if (round > 0)
                                      gpu.Compare(stream, blocks[block], BlockBytes(),
                                                  (round - 1) * kBlocks + block, differences.address());
                                    gpu.Fill(stream, blocks[block], BlockBytes(), round * kBlocks + block);
                                    return CUDA_SUCCESS;
                                  }),
              CUDA_SUCCESS)
        << core.residency->LastError();
  };
  // What has left before the hash is loaded is not mapped.
  const auto all_mapped = [&] {
    gpu.Synchronize();
    const allocator::ResidencyStats stats = core.residency->Stats();
    return stats.soft_now_bytes > 0 && stats.soft_now_bytes == stats.host_tier_bytes;
  };
  for (constexpr int kMax = 500; round < kMax && (round < 2 || !all_mapped()); ++round) {
    for (int i = 0; i < kBlocks; ++i) step(sets[i], i);
  }
  if (core.residency->Stats().verified_evictions == 0) GTEST_SKIP() << "there is no content hash here";
  ASSERT_TRUE(all_mapped());
  for (const int last = round + kRounds; round < last; ++round) {
    for (int i = 0; i < kBlocks; ++i) step((i + round) % 3 == 0 ? sets[i] : AccessSet(), i);
  }
  EXPECT_EQ(differences.Count(), 0u);
  EXPECT_GT(core.residency->Stats().soft_writes, 0u);
  End(&core, blocks);
}

INSTANTIATE_TEST_SUITE_P(Tiers, ResidencyTest, testing::Bool(),
                         [](const auto& of) { return of.param ? "HostAndDisk" : "HostAlone"; });

}  // namespace
}  // namespace spillway::gpu
