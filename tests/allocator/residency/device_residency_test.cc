// The interface of the residency, one behaviour a case.

#include "allocator/residency/device_residency.h"

#include <gtest/gtest.h>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

TEST(ResidencyTest, KeepsContentsOfBlocksThatDoNotFit) {
  CoreDevice device({});
  const auto blocks = AllocateFilled(device, 24);
  for (int round = 0; round < 3; ++round) ExpectContents(device, blocks);
  const ResidencyStats stats = device->Stats();
  EXPECT_GT(stats.host_spilled_bytes, 0u);
  EXPECT_GT(stats.disk_spilled_bytes, 0u);
  EXPECT_GT(stats.fetched_bytes, 0u);
  EXPECT_LE(stats.peak_bytes, stats.budget_bytes);
}

TEST(ResidencyTest, EitherTierAloneWorks) {
  for (const bool disk : {false, true}) {
    CoreSetup setup;
    setup.disk = disk;
    setup.host_bytes = disk ? 0 : 16 << 20;
    CoreDevice device(setup);
    const auto blocks = AllocateFilled(device, 16);
    ExpectContents(device, blocks);
    const ResidencyStats stats = device->Stats();
    EXPECT_EQ(stats.disk_spilled_bytes > 0, disk);
    EXPECT_EQ(stats.host_spilled_bytes > 0, !disk);
  }
}

TEST(ResidencyTest, RefusesWhatCanNeverFit) {
  CoreSetup setup;
  setup.disk = false;
  setup.host_bytes = 1 << 20;
  CoreDevice device(setup);
  std::vector<CUdeviceptr> blocks;
  absl::Status status;
  for (int i = 0; i < 40 && status.ok(); ++i) {
    auto block = device->Allocate(kBlock, {});
    status = block.status();
    if (block.ok()) blocks.push_back(*block);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find("must stay free to exchange them"), std::string::npos);
  for (CUdeviceptr block : blocks) {
    EXPECT_EQ(device.Launch(nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], kBlock, 3); }),
              CUDA_SUCCESS);
  }
}

TEST(ResidencyTest, LaunchLargerThanTheBudgetIsRefusedWithWords) {
  CoreDevice device({});
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 9; ++i) blocks.push_back(device.MustAllocate(kBlock));
  EXPECT_EQ(device.Launch(nullptr, blocks, [](const auto&) {}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(device->LastError().find("names 9 blocks of together"), std::string::npos);
  EXPECT_NE(device->LastError().find("A larger budget or smaller tensors"), std::string::npos);
  EXPECT_EQ(device.Launch(nullptr, {blocks[0]}, [](const auto&) {}), CUDA_SUCCESS);
}

TEST(ResidencyTest, PinnedBlocksStay) {
  CoreDevice device({});
  const auto blocks = AllocateFilled(device, 3);
  AccessSet set;
  device.addresses().Collect(blocks[0], &set);
  ASSERT_TRUE(device->Pin(set, PinReason::kExport).ok());
  const auto more = AllocateFilled(device, 20);
  EXPECT_EQ(CoreDevice::Differences(blocks[0], kBlock, 1), 0u) << "touched by the host without any launch";
  EXPECT_EQ(device->Stats().pinned_bytes, kBlock);
  EXPECT_EQ(device->Machine().pinned_bytes, kBlock);
  ASSERT_EQ(device->PinnedBlocks().size(), 1u);
  EXPECT_EQ(device->PinnedBlocks()[0].bytes, kBlock);
}

}  // namespace
}  // namespace spillway::allocator
