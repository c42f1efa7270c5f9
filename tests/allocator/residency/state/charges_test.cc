// Charging by what is live: what once was allocated, launched or refused limits nothing.

#include "allocator/residency/state/charges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

CoreSetup SmallSetup() {
  CoreSetup setup;
  setup.budget_bytes = 16 << 20;
  setup.host_bytes = 8 << 20;
  return setup;
}

uint64_t WrongOf(CoreDevice& device, CUdeviceptr block, uint64_t bytes, uint64_t version) {
  uint64_t wrong = 1;
  EXPECT_EQ(device.Launch(nullptr, {block},
                          [&, bytes, version](const auto& a) {
                            wrong = CoreDevice::Differences(a[0], bytes, version);
                          }),
            CUDA_SUCCESS)
      << device->LastError();
  device.Synchronize();
  return wrong;
}

// How many blocks of that size can be allocated and used, at most `most`.
size_t CountUsable(CoreDevice& device, uint64_t bytes, size_t most) {
  std::vector<CUdeviceptr> blocks;
  while (blocks.size() < most) {
    auto block = device->Allocate(bytes, {});
    if (!block.ok()) break;
    blocks.push_back(*block);
    EXPECT_EQ(FillBlock(device, *block, bytes, blocks.size()), CUDA_SUCCESS) << device->LastError();
  }
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(WrongOf(device, blocks[i], bytes, i + 1), 0u) << i;
  for (CUdeviceptr block : blocks) EXPECT_TRUE(device->Free(block).ok());
  return blocks.size();
}

TEST(BudgetInForceTest, FallsWithWhatTheDriverHasAndComesBack) {
  CoreDevice device(SmallSetup());
  const auto limit = [&](uint64_t free_bytes) {
    const TableLock lock(device->core()->table);
    device->charges()->LimitByFree(lock, free_bytes);
  };
  const uint64_t start = device->Stats().budget_bytes;
  EXPECT_EQ(start, SmallSetup().budget_bytes);
  EXPECT_EQ(device->Stats().budget_in_force_bytes, start);
  limit(8 << 20);
  const ResidencyStats less = device->Stats();
  EXPECT_LT(less.chunk_target_bytes, uint64_t{8} << 20);
  EXPECT_EQ(less.budget_in_force_bytes, start - (SmallSetup().budget_bytes - (uint64_t{8} << 20)));
  EXPECT_EQ(less.budget_bytes, start);
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  device->MemoryInfo(&free_bytes, &total_bytes);
  EXPECT_EQ(free_bytes, less.budget_in_force_bytes);
  EXPECT_EQ(total_bytes, start);
  limit(uint64_t{1} << 30);
  EXPECT_EQ(device->Stats().budget_in_force_bytes, start);
}

TEST(BudgetInForceTest, IsReportedAgainWhenItHasFallenByASixteenth) {
  std::atomic<bool>& refuses = RefusesHandles();
  CoreSetup setup = SmallSetup();
  setup.driver = DriverThatMayRefuseHandles();
  CoreDevice device(setup);
  std::vector<CUdeviceptr> blocks;
  testing::internal::CaptureStderr();
  for (uint64_t version = 1; version <= 3; ++version) {
    blocks.push_back(*device->Allocate(4 << 20, {}));
    ASSERT_EQ(FillBlock(device, blocks.back(), 4 << 20, version), CUDA_SUCCESS) << device->LastError();
    refuses = true;  // each block after the first wants what the driver does not give
  }
  for (int round = 0; round < 3; ++round) {
    for (uint64_t version = 1; version <= 3; ++version) {
      {
        const TableLock lock(device->core()->table);
        device->charges()->RestoreTarget(lock);
      }
      EXPECT_EQ(WrongOf(device, blocks[version - 1], 4 << 20, version), 0u);
    }
  }
  const std::string lines = testing::internal::GetCapturedStderr();
  const std::string line = "the GPU has less than the budget, chunks fall to";
  const size_t first = lines.find(line);
  ASSERT_NE(first, std::string::npos) << lines;
  EXPECT_EQ(lines.find(line, first + 1), std::string::npos) << lines;
}

uint64_t FreeBytes(CoreDevice& device) {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  device->MemoryInfo(&free_bytes, &total_bytes);
  EXPECT_EQ(total_bytes, device->Stats().budget_bytes);
  return free_bytes;
}

// What libraries compute with: reserved is never less than what is live, and free and idle memory together are what the
// next allocation gets.
TEST(MemoryInfoTest, ReservedCountsWhatIsAwayAndFreeWhatMayLeave) {
  CoreSetup setup = SmallSetup();
  setup.budget_bytes = 8 << 20;
  setup.disk = false;
  CoreDevice device(setup);
  std::vector<CUdeviceptr> blocks;
  for (uint64_t version = 1; version <= 5; ++version) {
    blocks.push_back(*device->Allocate(2 << 20, {}));
    ASSERT_EQ(FillBlock(device, blocks.back(), 2 << 20, version), CUDA_SUCCESS) << device->LastError();
    device.Synchronize();
    const ResidencyStats stats = device->Stats();
    const Residency::ReservedBytes reserved = device->Reserved();
    EXPECT_GE(reserved.now, stats.live_bytes) << version;
    EXPECT_GE(reserved.now, stats.chunk_bytes) << version;
    EXPECT_GE(reserved.peak, reserved.now) << version;
    const uint64_t unused = stats.budget_bytes - stats.resident_bytes;
    if (stats.spilled_bytes == 0) {
      EXPECT_EQ(FreeBytes(device), unused) << version;
    } else {
      EXPECT_GE(FreeBytes(device), uint64_t{2} << 20) << version << ": the next block of 2 MiB is had";
      EXPECT_LE(FreeBytes(device), stats.budget_bytes);
    }
  }
  EXPECT_GT(device->Stats().spilled_bytes, 0u);
  AccessSet set;
  device.addresses().Collect(blocks.front(), &set);
  ASSERT_TRUE(device->Pin(set, PinReason::kExport).ok());
  EXPECT_LE(FreeBytes(device), setup.budget_bytes - (2 << 20)) << "a pinned block does not leave";
  const uint64_t most = device->Reserved().peak;
  for (const CUdeviceptr block : blocks) ASSERT_TRUE(device->Free(block).ok());
  ASSERT_TRUE(device->EmptyCache().ok());
  EXPECT_EQ(device->Reserved().now, device->Stats().chunk_bytes);
  EXPECT_EQ(device->Reserved().peak, most);
}

TEST(ChargingTest, AFreedLargeBlockLimitsNothing) {
  CoreDevice device(SmallSetup());
  EXPECT_EQ(CountUsable(device, 2 << 20, 16), 16u);
  const CUdeviceptr large = device.MustAllocate(10 << 20);
  EXPECT_EQ(FillBlock(device, large, 10 << 20, 1), CUDA_SUCCESS);
  ASSERT_TRUE(device->Free(large).ok());
  EXPECT_EQ(CountUsable(device, 2 << 20, 16), 16u);
}

TEST(ChargingTest, ABlockOfMostOfTheBudgetIsUsedBesideSpilledOnes) {
  CoreDevice device(SmallSetup());
  std::vector<CUdeviceptr> small;
  for (uint64_t i = 0; i < 10; ++i) {
    small.push_back(device.MustAllocate(2 << 20));
    EXPECT_EQ(FillBlock(device, small.back(), 2 << 20, i), CUDA_SUCCESS);
  }
  constexpr uint64_t kLarge = (16 << 20) / 10 * 9 / kChunk * kChunk;
  const CUdeviceptr large = device.MustAllocate(kLarge);
  for (uint64_t round = 0; round < 3; ++round) {
    EXPECT_EQ(FillBlock(device, large, kLarge, 100 + round), CUDA_SUCCESS) << device->LastError();
    for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(WrongOf(device, small[i], 2 << 20, i), 0u);
    EXPECT_EQ(WrongOf(device, large, kLarge, 100 + round), 0u);
  }
  device->CheckInvariants();
}

// All tiers full, then two blocks that fill the GPU take turns: whatever was promised is kept, in both
// orders.
TEST(ChargingTest, TwoBlocksOfMostOfTheBudgetTakeTurnsOrTheSecondIsRefusedAtItsAllocation) {
  constexpr uint64_t kLarge = (16 << 20) / 100 * 85 / kChunk * kChunk;
  for (const uint64_t host : {8 << 20, 24 << 20, 40 << 20, 64 << 20}) {
    for (const bool second_first : {false, true}) {
      CoreSetup setup = SmallSetup();
      setup.disk = false;
      setup.host_bytes = host;
      CoreDevice device(setup);
      std::vector<CUdeviceptr> large;
      for (int i = 0; i < 2; ++i) {
        auto block = device->Allocate(kLarge, {});
        if (block.ok()) large.push_back(*block);
      }
      std::vector<CUdeviceptr> small;
      for (auto block = device->Allocate(kChunk, {}); block.ok(); block = device->Allocate(kChunk, {}))
        small.push_back(*block);
      ASSERT_FALSE(large.empty());
      ASSERT_FALSE(small.empty());
      if (second_first) std::ranges::reverse(large);
      for (size_t i = 0; i < small.size(); ++i)
        ASSERT_EQ(FillBlock(device, small[i], kChunk, i), CUDA_SUCCESS);
      for (uint64_t round = 0; round < 3; ++round) {
        for (size_t i = 0; i < large.size(); ++i) {
          if (round > 0) {
            EXPECT_EQ(WrongOf(device, large[i], kLarge, 10 * round + i), 0u);
          }
          EXPECT_EQ(FillBlock(device, large[i], kLarge, 10 * (round + 1) + i), CUDA_SUCCESS)
              << device->LastError() << " host " << host << " round " << round;
        }
      }
      for (size_t i = 0; i < small.size(); ++i) EXPECT_EQ(WrongOf(device, small[i], kChunk, i), 0u);
      if (host == 64 << 20) {
        EXPECT_EQ(large.size(), 2u);
      }
    }
  }
}

TEST(ChargingTest, TheRefusalNamesTheTermThatIsShort) {
  CoreSetup setup = SmallSetup();
  setup.disk = false;
  CoreDevice device(setup);
  const auto words = [&](uint64_t bytes) {
    return std::string(device->Allocate(bytes, {}).status().message());
  };
  EXPECT_THAT(words(17 << 20),
              testing::MatchesRegex("GPU memory is short for one launch: a block of 17 MiB must "
                                    "be on the GPU at once, and there are .*too little. To do: .*"));
  std::vector<CUdeviceptr> blocks;
  for (auto block = device->Allocate(1 << 20, {}); block.ok(); block = device->Allocate(1 << 20, {}))
    blocks.push_back(*block);
  EXPECT_GE(blocks.size(), 20u);
  const std::string text = words(1 << 20);
  EXPECT_THAT(text, testing::HasSubstr("capacity off the GPU is short: "));
  // The sums add up: what is needed, what is there, and the difference.
  std::vector<uint64_t> numbers;  // KiB
  for (size_t at = 0; (at = text.find("iB", at)) != std::string::npos; ++at) {
    const uint64_t number = std::stoull(text.substr(text.find_last_not_of("0123456789", at - 3) + 1));
    numbers.push_back(text[at - 1] == 'M' ? number << 10 : number);
  }
  ASSERT_EQ(numbers.size(), 9u) << text;
  EXPECT_EQ(numbers[0] + numbers[1], numbers[2]) << text;
  EXPECT_EQ(numbers[3] + numbers[5] + numbers[6], numbers[7]) << text << " (the fifth number is the budget)";
  EXPECT_EQ(numbers[2] - numbers[7], numbers[8]) << text;
  EXPECT_GT(numbers[8], 0u) << text;
}

// A launch's set counts with those of its blocks that are live: not at all once they are freed, and again
// when their addresses are handed out again.
TEST(ChargingTest, ALaunchIsRememberedWithItsLiveBlocks) {
  CoreDevice device(SmallSetup());
  const auto allocate = [&] {
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(device.MustAllocate(2 << 20));
    return blocks;
  };
  const CUdeviceptr stays = device.MustAllocate(1 << 20);
  std::vector<CUdeviceptr> set = allocate();
  const std::vector<CUdeviceptr> first = set;
  set.push_back(stays);
  EXPECT_EQ(device.Launch(nullptr, set, [](const auto&) {}), CUDA_SUCCESS);
  EXPECT_EQ(device->core()->table.LargestLaunchBytes(), 13u << 20);
  for (CUdeviceptr block : first) ASSERT_TRUE(device->Free(block).ok());
  EXPECT_EQ(device->core()->table.LargestLaunchBytes(), 1u << 20);
  EXPECT_EQ(allocate(), first) << "equal steps get equal addresses";
  EXPECT_EQ(device->core()->table.LargestLaunchBytes(), 13u << 20);
  for (CUdeviceptr block : first) ASSERT_TRUE(device->Free(block).ok());
  ASSERT_TRUE(device->Free(stays).ok());
  ASSERT_TRUE(device->EmptyCache().ok());
  allocate();
  EXPECT_EQ(device->core()->table.LargestLaunchBytes(), 0u) << "forgotten with the cache";
  device->CheckInvariants();
}

}  // namespace
}  // namespace spillway::allocator
