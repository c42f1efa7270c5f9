// Reclaimer: what leaves for whom, and that nothing leaves where nothing may.

#include "allocator/residency/transfer/reclaimer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

TEST(ReclaimerTest, ARefusedChunkLowersTheBudgetForAWhileOnly) {
  CoreDevice device({});
  const std::vector<CUdeviceptr> blocks = Allocate(device, 14);
  SetSimcuda("FAIL_CREATE_EVERY", "30");  // the driver has less than the budget: 29 chunks of 63
  for (int i = 0; i < 14; ++i) EXPECT_EQ(FillOne(device, blocks[i], i), CUDA_SUCCESS);
  SetSimcuda("FAIL_CREATE_EVERY", "0");
  EXPECT_EQ(device.Launch(nullptr, {blocks.begin(), blocks.begin() + 7}, [](const auto&) {}), CUDA_SUCCESS)
      << device->LastError();
  for (int i = 0; i < 14; ++i) EXPECT_EQ(Wrong(device, blocks[i], i), 0u);
}

// What a call that cannot be seen does: it touches blocks without asking.
TEST(ReclaimerTest, WhenEvictionsEndEveryBlockIsThere) {
  CoreDevice device({});
  device->OnExternalBytes(kChunk);  // its share is in use
  std::vector<CUdeviceptr> blocks = Allocate(device, 9);
  for (size_t i = 0; i < blocks.size(); ++i) ASSERT_EQ(FillOne(device, blocks[i], i + 1), CUDA_SUCCESS);
  device.Synchronize();
  while (blocks.size() > 6) {
    ASSERT_TRUE(device->Free(blocks.back()).ok());
    blocks.pop_back();
  }
  EXPECT_LT(device->Stats().resident_bytes, device->Stats().live_bytes);
  ASSERT_TRUE(device->StopEvicting().ok());
  device.Synchronize();
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(CoreDevice::Differences(blocks[i], kBlock, i + 1), 0u);
  const CUdeviceptr later = device.MustAllocate(kBlock);
  CoreDevice::Fill(later, kBlock, 77);
  EXPECT_EQ(CoreDevice::Differences(later, kBlock, 77), 0u);
  EXPECT_FALSE(device->Allocate(kBlock, {}).ok());  // all there is must fit the GPU from now on
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(CoreDevice::Differences(blocks[i], kBlock, i + 1), 0u);
}

// A stream waits for what this thread does only after its launch. The plan has sent away what that stream uses.
TEST(ReclaimerTest, AnEvictionBehindAStreamThatWaitsKeepsNobodyWaiting) {
  CoreDevice device({});
  const std::vector<CUdeviceptr> blocks = Allocate(device, 8);  // one more than fit
  for (size_t i = 0; i < blocks.size(); ++i) ASSERT_EQ(FillOne(device, blocks[i], i + 1), CUDA_SUCCESS);
  device.Synchronize();
  ASSERT_EQ(StateOf(device, blocks[0]), BlockState::kSpilled);
  std::atomic<bool> done{false}, late{false};
  const auto waits = [&](const auto&) { late = !tests::WaitUntil([&] { return done.load(); }); };
  ASSERT_EQ(device.Launch(device.NewStream(), {blocks[5]}, waits), CUDA_SUCCESS);
  StartEviction(device, blocks[5]);
  EXPECT_EQ(device.Launch(nullptr, {blocks[0]}, [](const auto&) {}), CUDA_SUCCESS) << device->LastError();
  EXPECT_FALSE(late.load()) << "it waited for the stream";
  done = true;
  device.Synchronize();
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(Wrong(device, blocks[i], i + 1), 0u);
}

TEST(ReclaimerTest, FreedBlocksGoFirst) {
  CoreDevice device({});
  std::vector<CUdeviceptr> blocks = Allocate(device, 7);  // as many as fit
  for (CUdeviceptr block : blocks) ASSERT_EQ(FillOne(device, block, 1), CUDA_SUCCESS);
  device.Synchronize();
  ASSERT_TRUE(device->Free(blocks.back()).ok());
  blocks.pop_back();
  const CUdeviceptr other =
      device.MustAllocate(kBlock, device.NewStream());  // which the cached block does not serve
  EXPECT_EQ(device.Launch(nullptr, {other}, [](const auto&) {}), CUDA_SUCCESS) << device->LastError();
  device.Synchronize();
  EXPECT_EQ(device->Stats().spilled_bytes, 0u);
  for (CUdeviceptr block : blocks) EXPECT_EQ(Wrong(device, block, 1), 0u);
}

}  // namespace
}  // namespace spillway::allocator
