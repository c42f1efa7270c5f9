// What is left free for others is used before anything is refused, and given back; the application's own
// limit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "allocator/residency/state/charges.h"
#include "tests/allocator/motion_helpers.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {
namespace {

using testing::HasSubstr;

CoreSetup LendingSetup() {
  CoreSetup setup;  // 4 MiB, of which a chunk is the share of external memory
  setup.host_bytes = 8 << 20;
  setup.reserve_bytes = 1 << 20;
  return setup;
}

CUresult LaunchAll(CoreDevice& device, const std::vector<CUdeviceptr>& blocks) {
  return device.Launch(nullptr, blocks, [](const auto&) {});
}

TEST(LendingTest, ALaunchThatNeedsMoreGetsItAndItComesBack) {
  CoreDevice device(LendingSetup());
  const uint64_t budget = device->Stats().budget_bytes;
  std::vector<CUdeviceptr> blocks = Allocate(device, 10);
  EXPECT_EQ(LaunchAll(device, blocks), CUDA_SUCCESS) << device->LastError();
  device.Synchronize();
  const ResidencyStats stats = device->Stats();
  uint64_t free_bytes = 0, total_bytes = 0;
  device->MemoryInfo(&free_bytes, &total_bytes);
  EXPECT_EQ(total_bytes, 5u << 20) << "not what is lent now";
  EXPECT_GT(stats.budget_bytes, budget);
  EXPECT_LE(stats.budget_bytes, budget + (1 << 20));
  EXPECT_EQ(stats.budget_in_force_bytes, stats.budget_bytes);
  EXPECT_GE(stats.peak_chunk_bytes, 10 * kBlock);
  EXPECT_LE(stats.peak_bytes, stats.budget_bytes);
  device->CheckInvariants();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(device->Free(blocks[i]).ok());
  EXPECT_EQ(device->Stats().budget_in_force_bytes, budget);
  EXPECT_EQ(device->Stats().budget_bytes, stats.budget_bytes) << "bounds the peak";
  EXPECT_TRUE(tests::WaitUntil([&] { return device->Stats().chunk_bytes <= budget; }));
}

TEST(LendingTest, ARefusalSaysWhatThereIsWithAllLent) {
  CoreDevice device(LendingSetup());
  const std::vector<CUdeviceptr> blocks = Allocate(device, 11);
  EXPECT_EQ(LaunchAll(device, blocks), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(device->LastError(), HasSubstr("the budget leaves 5 MiB"));
  EXPECT_EQ(LaunchAll(device, {blocks.begin(), blocks.begin() + 10}), CUDA_SUCCESS) << device->LastError();
}

TEST(LendingTest, ABlockAloneToo) {
  CoreDevice device(LendingSetup());
  const CUdeviceptr block = device.MustAllocate((5 << 20) - kChunk);
  EXPECT_EQ(LaunchAll(device, {block}), CUDA_SUCCESS) << device->LastError();
  EXPECT_THAT(std::string(device->Allocate((5 << 20) + kChunk, {}).status().message()),
              HasSubstr("must be on the GPU at once"));
}

TEST(LendingTest, WhatHasNoPlaceElsewhereStaysThere) {
  for (const bool evict : {true, false}) {
    CoreSetup setup = LendingSetup();
    setup.evict = evict;
    setup.host_bytes = 0;
    setup.disk = false;
    CoreDevice device(setup);
    std::vector<CUdeviceptr> blocks = Allocate(device, 10);
    for (const CUdeviceptr block : blocks) EXPECT_EQ(LaunchAll(device, {block}), CUDA_SUCCESS) << evict;
    EXPECT_FALSE(device->Allocate(kBlock, {}).ok());
    // One block less: what is lent stays as long as the others have no other place.
    ASSERT_TRUE(device->Free(blocks.back()).ok());
    blocks.pop_back();
    device->CheckInvariants();
    EXPECT_GE(device->Stats().chunk_target_bytes, blocks.size() * kBlock);
    for (const CUdeviceptr block : blocks) EXPECT_EQ(LaunchAll(device, {block}), CUDA_SUCCESS) << evict;
    while (!blocks.empty()) {
      ASSERT_TRUE(device->Free(blocks.back()).ok());
      blocks.pop_back();
    }
    EXPECT_EQ(device->Stats().budget_in_force_bytes, setup.budget_bytes);
  }
}

// The files of a disk that is full cannot grow, which is found out only by trying.
TEST(LendingTest, AFullDiskIsNoPlaceElsewhereEither) {
  CoreSetup setup = LendingSetup();
  setup.host_bytes = 0;
  setup.disk_cap_bytes = 16 << 20;
  CoreDevice device(setup);
  size_t count = 0;
  for (auto block = device->Allocate(kBlock, {}); block.ok(); block = device->Allocate(kBlock, {})) ++count;
  EXPECT_GT(count, 20u);
  EXPECT_EQ(device->Stats().budget_bytes, 5u << 20) << "all of the reserve was lent";
}

TEST(LendingTest, AFreeLeavesATargetThatIsLowerForTheDriver) {
  CoreDevice device(LendingSetup());
  const std::vector<CUdeviceptr> blocks = Allocate(device, 10);
  ASSERT_EQ(LaunchAll(device, blocks), CUDA_SUCCESS) << device->LastError();
  {
    const TableLock lock(device->core()->table);
    device->charges()->LowerTargetTo(lock, 1 << 20);
  }
  ASSERT_TRUE(device->Free(blocks.front()).ok());
  EXPECT_LE(device->Stats().chunk_target_bytes, 1u << 20);
}

TEST(LendingTest, WhatMustStayBesideALaunchIsCounted) {
  CoreDevice device(LendingSetup());
  const std::vector<CUdeviceptr> blocks = Allocate(device, 10);
  for (int i = 0; i < 4; ++i) {
    AccessSet set;
    device.addresses().Collect(blocks[i], &set);
    ASSERT_TRUE(device->Pin(set, PinReason::kExport).ok()) << i;
  }
  EXPECT_EQ(LaunchAll(device, {blocks.begin() + 4, blocks.end()}), CUDA_SUCCESS) << device->LastError();
}

TEST(LendingTest, ExternalMemoryTakesItsShareBack) {
  CoreSetup setup = LendingSetup();
  setup.reserve_bytes = 0;
  setup.external_share_bytes = 1 << 20;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 8);
  EXPECT_EQ(LaunchAll(device, blocks), CUDA_SUCCESS) << device->LastError();
  device.Synchronize();
  device->OnExternalBytes(1 << 20);
  EXPECT_TRUE(tests::WaitUntil([&] { return device->Stats().chunk_bytes <= (3 << 20); }));
  EXPECT_EQ(LaunchAll(device, blocks), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(LaunchAll(device, {blocks.begin(), blocks.begin() + 6}), CUDA_SUCCESS) << device->LastError();
}

TEST(LendingTest, ADriverThatHasLessEndsTheLaunchAndNothingElse) {
  std::atomic<bool>& refuses = RefusesHandles();
  CoreSetup setup = LendingSetup();
  setup.driver = DriverThatMayRefuseHandles();
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 9);
  for (uint64_t i = 0; i < 7; ++i) ASSERT_EQ(FillBlock(device, blocks[i], kBlock, i), CUDA_SUCCESS);
  refuses = true;
  EXPECT_EQ(LaunchAll(device, blocks), CUDA_ERROR_OUT_OF_MEMORY);
  refuses = false;
  EXPECT_EQ(LaunchAll(device, blocks), CUDA_SUCCESS) << device->LastError();
}

TEST(CapTest, WhatIsAboveTheApplicationsLimitLeavesAndComesBack) {
  CoreDevice device(LendingSetup());
  const std::vector<CUdeviceptr> blocks = Allocate(device, 7);
  for (uint64_t i = 0; i < blocks.size(); ++i)
    ASSERT_EQ(FillBlock(device, blocks[i], kBlock, i + 1), CUDA_SUCCESS);
  device.Synchronize();
  EXPECT_EQ(device->SetCap(2 << 20), 2u << 20);
  EXPECT_TRUE(tests::WaitUntil([&] { return device->Stats().chunk_bytes <= (2 << 20); }));
  uint64_t free_bytes = 0, total_bytes = 0;
  device->MemoryInfo(&free_bytes, &total_bytes);
  EXPECT_EQ(total_bytes, 5u << 20) << "with the reserve, and whatever the limit";
  EXPECT_LE(free_bytes, 2u << 20);
  EXPECT_EQ(LaunchAll(device, blocks), CUDA_ERROR_OUT_OF_MEMORY);
  const std::string words(device->Allocate(3 << 20, {}).status().message());
  EXPECT_THAT(words, HasSubstr("of GPU memory (a limit of 2 MiB"));
  EXPECT_THAT(words, HasSubstr("set_per_process_memory_fraction"));
  EXPECT_LE(device->Stats().chunk_bytes, 2u << 20) << "the reserve is above the limit";
  for (uint64_t i = 0; i < blocks.size(); ++i) {
    uint64_t wrong = 1;
    EXPECT_EQ(device.Launch(nullptr, {blocks[i]},
                            [&, i](const auto& a) { wrong = CoreDevice::Differences(a[0], kBlock, i + 1); }),
              CUDA_SUCCESS);
    device.Synchronize();
    EXPECT_EQ(wrong, 0u) << i;
  }
  EXPECT_EQ(device->core()->free_reserve_bytes.load(), (2u << 20) / 16);
  EXPECT_EQ(device->core()->run_ahead_bytes.load(), (2u << 20) / 4);
  device->SetCap(UINT64_MAX);
  EXPECT_EQ(device->core()->free_reserve_bytes.load(), (4u << 20) / 16);
  EXPECT_EQ(LaunchAll(device, blocks), CUDA_SUCCESS) << device->LastError();
  EXPECT_TRUE(device->Allocate(3 << 20, {}).ok());
}

TEST(CapTest, WhatHasNoPlaceElsewhereStaysAboveIt) {
  CoreSetup setup = LendingSetup();
  setup.host_bytes = 1 << 20;
  setup.disk = false;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 7);
  for (uint64_t i = 0; i < blocks.size(); ++i)
    ASSERT_EQ(FillBlock(device, blocks[i], kBlock, i + 1), CUDA_SUCCESS);
  EXPECT_GT(device->SetCap(1 << 20), 1u << 20) << "what is in force";
  for (int round = 0; round < 2; ++round) {
    for (const CUdeviceptr block : blocks)
      EXPECT_EQ(LaunchAll(device, {block}), CUDA_SUCCESS) << device->LastError();
  }
  device->CheckInvariants();
}

}  // namespace
}  // namespace spillway::allocator
