#include "allocator/residency/releaser.h"

#include <gtest/gtest.h>

#include <vector>

#include "allocator/residency/residency.h"
#include "tests/allocator/motion_helpers.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {
namespace {

uint64_t ChunkBytes(CoreDevice& device) { return device->Stats().chunk_bytes; }

// Blocks that fill the device, all idle.
std::vector<CUdeviceptr> FilledDevice(CoreDevice& device) {
  std::vector<CUdeviceptr> blocks = AllocateFilled(device, 6);
  device.Synchronize();
  return blocks;
}

TEST(ReleaserTest, TheFirstAttemptGivesBackWhatNoLiveBlockNeeds) {
  CoreDevice device({});
  std::vector<CUdeviceptr> blocks = FilledDevice(device);
  const uint64_t before = ChunkBytes(device);
  EXPECT_FALSE(device->GiveBack(0, 0)) << "every block is live";
  EXPECT_EQ(ChunkBytes(device), before);
  ASSERT_TRUE(device->Free(blocks.back()).ok());
  blocks.pop_back();
  EXPECT_TRUE(device->GiveBack(0, 0));
  EXPECT_EQ(ChunkBytes(device), before - kBlock);
  ExpectContents(device, blocks);
}

TEST(ReleaserTest, FurtherAttemptsEvictIdleBlocksDownToTheLargestLaunch) {
  CoreDevice device({});
  const std::vector<CUdeviceptr> blocks = FilledDevice(device);
  EXPECT_TRUE(device->GiveBack(1, 0));
  EXPECT_EQ(ChunkBytes(device), kBlock) << "what the largest launch needs";
  EXPECT_FALSE(device->GiveBack(2, 0)) << "there is nothing left to give";
  EXPECT_GT(device->Stats().evictions, 0u);
  EXPECT_FALSE(device->GiveBack(Residency::kMaxGiveBacks, 0));
}

// For a while other launches do not take what was given back.
TEST(ReleaserTest, TheTargetIsLowUntilTheDeviceIsAskedForItsMemory) {
  CoreDevice device({});
  const std::vector<CUdeviceptr> blocks = FilledDevice(device);
  ASSERT_TRUE(device->GiveBack(1, 0));
  const auto limited = [&] {
    const TableLock lock(device->core()->table);
    return device->charges()->lowered_at(lock) != 0;
  };
  EXPECT_TRUE(limited());
  EXPECT_TRUE(tests::WaitUntil([&] { return !limited(); })) << "the stand-in's device is nearly empty";
  ExpectContents(device, blocks);
}

TEST(ReleaserTest, WhoeverNeedsMoreHasItAtOnce) {
  CoreDevice device({});
  const std::vector<CUdeviceptr> blocks = FilledDevice(device);
  ASSERT_TRUE(device->GiveBack(1, 0));
  // Larger than any launch before, and then a block that is larger than what was left.
  uint64_t wrong = 0;
  EXPECT_EQ(device.Launch(nullptr, {blocks[0], blocks[1], blocks[2]},
                          [&](const auto& a) {
                            for (size_t i = 0; i < 3; ++i)
                              wrong += CoreDevice::Differences(a[i], kBlock, i + 1);
                          }),
            CUDA_SUCCESS);
  device.Synchronize();
  EXPECT_EQ(wrong, 0u);
  // Which block stayed at first goes by when its use was over: now one more is there than the largest launch needs.
  EXPECT_EQ(Wrong(device, blocks[5], 6), 0u);
  ASSERT_TRUE(device->GiveBack(1, 0));
  EXPECT_TRUE(device->Allocate(4 * kBlock, {}).ok());
}

TEST(ReleaserTest, WhereNothingMayLeaveNothingIsEvicted) {
  CoreSetup setup;
  setup.evict = false;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = FilledDevice(device);
  EXPECT_FALSE(device->GiveBack(1, 0));
  ExpectContents(device, blocks);
}

}  // namespace
}  // namespace spillway::allocator
