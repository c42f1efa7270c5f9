// Launches whose blocks do not fit the GPU together: a part of them stays in host memory, where kernels reach
// it.

#include "allocator/residency/state/reach.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/allocator/core_fixture.h"
#include "tests/allocator/motion_helpers.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class ReachTest : public testing::Test {
 protected:
  ReachTest() {
    setup_.reach = true;
    setup_.host_bytes = 16 * kMiB;
  }

  // One launch that names all of them: each must have its version, and gets the next one.
  void Step(CoreDevice& device, const std::vector<CUdeviceptr>& blocks, uint64_t bytes, uint64_t version) {
    std::atomic<uint64_t> wrong{0};
    EXPECT_EQ(device.Launch(nullptr, blocks,
                            [&wrong, bytes, version](const std::vector<CUdeviceptr>& a) {
                              for (size_t i = 0; i < a.size(); ++i) {
                                if (version > 0) wrong += CoreDevice::Differences(a[i], bytes, version + i);
                                CoreDevice::Fill(a[i], bytes, version + 1 + i);
                              }
                            }),
              CUDA_SUCCESS)
        << device->LastError();
    device.Synchronize();
    EXPECT_EQ(wrong.load(), 0u) << "version " << version;
  }
  void Fill(CoreDevice& device, CUdeviceptr block, uint64_t bytes, uint64_t version) {
    EXPECT_EQ(device.Launch(nullptr, {block}, [=](const auto& a) { CoreDevice::Fill(a[0], bytes, version); }),
              CUDA_SUCCESS)
        << device->LastError();
  }
  std::vector<CUdeviceptr> Allocate(CoreDevice& device, int count, uint64_t bytes) {
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(device.MustAllocate(bytes));
    return blocks;
  }
  static uint64_t ReachedBytes(CoreDevice& device) { return device->Stats().reached_now_bytes; }

  CoreSetup setup_;
};

TEST_F(ReachTest, ALaunchLargerThanTheBudgetRuns) {
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 3, 2 * kMiB);
  for (uint64_t version = 0; version < 5; ++version) Step(device, blocks, 2 * kMiB, version);
  const ResidencyStats stats = device->Stats();
  EXPECT_EQ(stats.reached_launches, 5u);
  EXPECT_GE(stats.reached_now_bytes, 2 * kMiB);
  EXPECT_LE(stats.peak_chunk_bytes, setup_.budget_bytes);
  device->CheckInvariants();
}

TEST_F(ReachTest, ABlockLargerThanTheBudgetLives) {
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> large = Allocate(device, 1, 6 * kMiB);
  const std::vector<CUdeviceptr> small = Allocate(device, 2, kMiB);
  for (uint64_t version = 0; version < 4; ++version) {
    Step(device, large, 6 * kMiB, version);
    Step(device, small, kMiB, version);
    device->CheckInvariants();
  }
}

TEST_F(ReachTest, ABlockIsWholeOnTheGpuAgainWhereThatFits) {
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 3, 2 * kMiB);
  Step(device, blocks, 2 * kMiB, 0);
  ASSERT_GT(ReachedBytes(device), 0u);
  for (size_t i = 0; i < blocks.size(); ++i) Step(device, {blocks[i]}, 2 * kMiB, i + 1);
  EXPECT_EQ(ReachedBytes(device), 0u);
  for (size_t i = 0; i < blocks.size(); ++i) Step(device, {blocks[i]}, 2 * kMiB, i + 2);
  device->CheckInvariants();
}

// Its bytes stay where they are when it is fetched, and when it leaves.
TEST_F(ReachTest, WhatLiesInHostMemoryIsNotCopied) {
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 3, 2 * kMiB);
  Step(device, blocks, 2 * kMiB, 0);
  const uint64_t host = device.host().storage_in_use();
  const uint64_t reached = ReachedBytes(device);
  EXPECT_EQ(host, reached);
  for (uint64_t version = 1; version < 4; ++version) Step(device, blocks, 2 * kMiB, version);
  EXPECT_EQ(device->Stats().spilled_bytes, 0u);
  EXPECT_EQ(device->Stats().fetched_bytes, 0u);
}

TEST_F(ReachTest, ExtentsThatWereOnTheDiskAreReadIntoHostMemory) {
  setup_.host_bytes = 3 * kMiB;
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> others = Allocate(device, 3, kMiB);
  for (size_t i = 0; i < others.size(); ++i) Fill(device, others[i], kMiB, i + 1);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 3, 2 * kMiB);
  for (uint64_t version = 0; version < 6; ++version) {
    Step(device, blocks, 2 * kMiB, version);
    for (size_t i = 0; i < others.size(); ++i) Step(device, {others[i]}, kMiB, version + i + 1);
  }
  EXPECT_GT(device->Stats().disk_spilled_bytes, 0u);
  device->CheckInvariants();
}

TEST_F(ReachTest, AFreedBlockGivesItsHostBuffersBack) {
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 3, 2 * kMiB);
  Step(device, blocks, 2 * kMiB, 0);
  for (const CUdeviceptr block : blocks) ASSERT_TRUE(device->Free(block).ok());
  ASSERT_TRUE(device->EmptyCache().ok());
  EXPECT_EQ(device.host().storage_in_use(), 0u);
  EXPECT_EQ(ReachedBytes(device), 0u);
  device->CheckInvariants();
  // The next life of such a block is whole again.
  const std::vector<CUdeviceptr> again = Allocate(device, 1, 2 * kMiB);
  Step(device, again, 2 * kMiB, 0);
  EXPECT_EQ(ReachedBytes(device), 0u);
}

TEST_F(ReachTest, WhatBudgetAndHostMemoryCannotTakeIsRefusedInWords) {
  setup_.host_bytes = kMiB;
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 3, 2 * kMiB);
  EXPECT_EQ(device.Launch(nullptr, blocks, [](const auto&) {}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(device->LastError().find("more than the 1 MiB of the host tier"), std::string::npos)
      << device->LastError();
  EXPECT_FALSE(device->Allocate(6 * kMiB, {nullptr, false}).ok());
}

// What stays on the GPU was not known to leave so little when the blocks came.
TEST_F(ReachTest, ALaunchThatFindsNoPlaceInHostMemoryIsRefusedInWords) {
  setup_.host_bytes = 3 * kMiB / 2;
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> pinned = Allocate(device, 1, 3 * kMiB);
  Step(device, pinned, 3 * kMiB, 0);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 2, 5 * kMiB / 4);
  for (const CUdeviceptr block : blocks) Fill(device, block, 5 * kMiB / 4, 1);
  AccessSet set;
  device.addresses().Collect(pinned[0], &set);
  ASSERT_TRUE(device->Residency::Pin(set, PinReason::kGraph).ok());
  EXPECT_EQ(device.Launch(nullptr, blocks, [](const auto&) {}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(device->LastError().find(
                "the blocks of one launch do not fit the GPU together, and the host tier of 1.50 "
                "MiB has no place for"),
            std::string::npos)
      << device->LastError();
  for (const CUdeviceptr block : blocks) Step(device, {block}, 5 * kMiB / 4, 1);
  device->CheckInvariants();
}

TEST_F(ReachTest, BlocksThatMustStayLeaveTheRestToHostMemory) {
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> pinned = Allocate(device, 1, 3 * kMiB);
  Step(device, pinned, 3 * kMiB, 0);
  AccessSet set;
  device.addresses().Collect(pinned[0], &set);
  ASSERT_TRUE(device->Residency::Pin(set, PinReason::kGraph).ok());
  const std::vector<CUdeviceptr> blocks = Allocate(device, 1, 2 * kMiB);
  for (uint64_t version = 0; version < 3; ++version) Step(device, blocks, 2 * kMiB, version);
  EXPECT_GT(ReachedBytes(device), 0u);
  Step(device, pinned, 3 * kMiB, 1);
  device->CheckInvariants();
}

TEST_F(ReachTest, ALaunchThatReachesAllFitsTogetherWithHostMemory) {
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 4, 2 * kMiB);
  for (size_t i = 0; i < blocks.size(); ++i) Fill(device, blocks[i], 2 * kMiB, i + 1);
  std::atomic<uint64_t> wrong{0};
  EXPECT_EQ(device.Launch(
                nullptr, {blocks[0]},
                [&](const auto&) {
                  for (size_t i = 0; i < blocks.size(); ++i)
                    wrong += CoreDevice::Differences(blocks[i], 2 * kMiB, i + 1);
                },
                1, CoreDevice::Way::kReachingAll),
            CUDA_SUCCESS);
  device.Synchronize();
  EXPECT_EQ(wrong.load(), 0u);
}

TEST_F(ReachTest, ARefusedMappingLeavesTheBytesWhereTheyWere) {
  CudaDriver driver = *CoreDevice::Driver();
  static std::atomic<int> refusals;
  refusals = 0;
  driver.cuMemMap = [](CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags) {
    if (refusals.load() > 0 && --refusals >= 0) return CUDA_ERROR_UNKNOWN;
    return CoreDevice::Driver()->cuMemMap(address, size, offset, handle, flags);
  };
  setup_.driver = &driver;
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 3, 2 * kMiB);
  for (size_t i = 0; i < blocks.size(); ++i) Fill(device, blocks[i], 2 * kMiB, i + 1);
  refusals = 1;
  Step(device, blocks, 2 * kMiB, 1);
  refusals = 1;
  Step(device, {blocks[0]}, 2 * kMiB, 2);
  Fill(device, blocks[0], 2 * kMiB, 2);
  Step(device, blocks, 2 * kMiB, 2);
  device->CheckInvariants();
}

TEST_F(ReachTest, WhatIsReachedGoesByThePassesOfTheKernelAndThenBySize) {
  CoreDevice device(setup_);
  const TableLock lock(device->core()->table);
  Block small, large, empty, on_disk;
  std::byte there{};
  const auto put = [&](Block* block, uint32_t chunks, BlockState state, bool disk) {
    block->chunks = chunks;
    block->state = state;
    if (state == BlockState::kSpilled)
      block->copies.homes.assign(chunks, disk ? ExtentHome::OnDisk({}) : ExtentHome::InHost({&there, 1}));
  };
  put(&small, 2, BlockState::kSpilled, false);
  put(&large, 9, BlockState::kSpilled, false);
  put(&empty, 12, BlockState::kEmpty, false);
  put(&on_disk, 20, BlockState::kSpilled, true);
  const auto chosen = [&](uint64_t extents, KernelPasses passes) {
    std::vector<std::pair<const Block*, uint32_t>> parts;
    for (const Reach::Part& part :
         Reach::ChooseLocked(lock, {&on_disk, &small, &empty, &large}, extents, passes))
      parts.emplace_back(part.block, part.extents);
    return parts;
  };
  using Parts = std::vector<std::pair<const Block*, uint32_t>>;
  EXPECT_EQ(chosen(10, KernelPasses::kOne), (Parts{{&large, 9}, {&small, 1}}));
  EXPECT_EQ(chosen(12, KernelPasses::kOne), (Parts{{&large, 9}, {&small, 2}, {&empty, 1}}));
  EXPECT_EQ(chosen(13, KernelPasses::kMany), (Parts{{&empty, 12}, {&on_disk, 1}}));
  EXPECT_EQ(chosen(32, KernelPasses::kAtomic),
            (Parts{{&on_disk, 20}, {&large, 9}, {&small, 2}, {&empty, 1}}));
  EXPECT_EQ(chosen(99, KernelPasses::kAtomic).size(), 4u) << "all there is";
}

}  // namespace
}  // namespace spillway::allocator
