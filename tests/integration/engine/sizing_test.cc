#include "integration/engine/sizing.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/sizes.h"

namespace spillway::integration {
namespace {

TEST(SizingTest, ASizeOfTheNodeIsSharedByItsRanks) {
  EXPECT_EQ(ShareOfRank(100 * kMiB, 1), 100 * kMiB);
  EXPECT_EQ(ShareOfRank(100 * kMiB, 0), 100 * kMiB);
  EXPECT_EQ(ShareOfRank(100 * kMiB, 2), 50 * kMiB);
  EXPECT_EQ(ShareOfRank(100 * kMiB, 3), 32 * kMiB);  // whole chunks
  EXPECT_EQ(ShareOfRank(0, 4), 0u);
  EXPECT_EQ(ShareOfRank(kMiB, 4), kChunkBytes);
}

TEST(SizingTest, TheDefaultBudgetLeavesAReserve) {
  EXPECT_EQ(DefaultBudget(100 * kGiB, 0).bytes, 99 * kGiB);           // at most 1 GiB
  EXPECT_EQ(DefaultBudget(500 * kMiB, 0).bytes, 468 * kMiB);          // at least 32 MiB
  EXPECT_EQ(DefaultBudget(10'000 * kMiB, 0).bytes, 9'700 * kMiB);     // 3 %
  EXPECT_EQ(DefaultBudget(500 * kMiB, 20 * kMiB).bytes, 488 * kMiB);  // external memory is part of it
  EXPECT_EQ(DefaultBudget(10 * kMiB, 0).bytes, 0u);
  EXPECT_EQ(DefaultBudget(500 * kMiB, 20 * kMiB).reserve_bytes, 32 * kMiB);
  EXPECT_EQ(DefaultBudget(10 * kMiB, 0).reserve_bytes, 10 * kMiB) << "no more than is free";
}

TEST(SizingTest, TheDefaultHostCapIsSharedByTheRanks) {
  EXPECT_EQ(DefaultHostCap(16 * kGiB, 1), 4 * kGiB);
  EXPECT_EQ(DefaultHostCap(16 * kGiB, 4), kGiB);
  EXPECT_EQ(DefaultHostCap(16 * kGiB, 0), 4 * kGiB);
}

TEST(SizingTest, StagingIsPartOfTheHostCap) {
  for (uint64_t cap : {uint64_t{0}, 2 * kMiB, 8 * kMiB, 100 * kMiB, 16 * kGiB}) {
    const auto with_disk = HostPoolOptions(cap, 1);
    const auto staging =
        static_cast<uint64_t>(with_disk.evict_staging_buffers + with_disk.fault_staging_buffers);
    EXPECT_GE(with_disk.evict_staging_buffers, 2);
    EXPECT_GE(with_disk.fault_staging_buffers, 2);
    EXPECT_LE(with_disk.storage_bytes + staging * kChunkBytes,
              std::max(cap, cap == 0 ? 24 * kChunkBytes : 4 * kChunkBytes));
    const auto without = HostPoolOptions(cap, 0);
    EXPECT_EQ(without.storage_bytes, cap / kChunkBytes * kChunkBytes);
    EXPECT_EQ(without.evict_staging_buffers + without.fault_staging_buffers, 0);
  }
}

TEST(SizingTest, StagingAloneKeepsEachDriveBusy) {
  for (const auto& [drives, each] : {std::pair<size_t, int>{1, 12}, {2, 12}, {4, 24}, {16, 96}}) {
    EXPECT_EQ(HostPoolOptions(0, drives).evict_staging_buffers, each) << drives;
    EXPECT_EQ(HostPoolOptions(0, drives).fault_staging_buffers, each) << drives;
  }
  EXPECT_EQ(HostPoolOptions(16 * kGiB, 16).evict_staging_buffers, 96) << "no less with a host tier";
}

TEST(SizingTest, AddressSpaceIsAPowerOfTwoAboveTheNeed) {
  EXPECT_EQ(AddressSpaceBytes(kGiB, 0, 0), 64 * kGiB);
  EXPECT_EQ(AddressSpaceBytes(80 * kGiB, 16 * kGiB, 0), 1024 * kGiB);
  EXPECT_EQ(AddressSpaceBytes(192 * kGiB, 1024 * kGiB, 1 << 30), 4096 * kGiB);
}

TEST(LimitedBudgetTest, BoundsWhatMayBeLentAsWell) {
  const DeviceBudget budget = {1000, 100};
  EXPECT_EQ(LimitedBudget(budget, UINT64_MAX).bytes, 1000u);
  EXPECT_EQ(LimitedBudget(budget, UINT64_MAX).reserve_bytes, 100u);
  EXPECT_EQ(LimitedBudget(budget, 1040).bytes, 1000u);
  EXPECT_EQ(LimitedBudget(budget, 1040).reserve_bytes, 40u);
  EXPECT_EQ(LimitedBudget(budget, 600).bytes, 600u);
  EXPECT_EQ(LimitedBudget(budget, 600).reserve_bytes, 0u);
}

TEST(MemoryPartsTest, AreASum) {
  const MemoryParts found = MemoryPartsOf(DefaultBudget(190 << 20, 0), 200 << 20);
  EXPECT_EQ(found.blocks_bytes + found.process_bytes + found.reserve_bytes + found.taken_bytes,
            uint64_t{200} << 20);
  EXPECT_EQ(Text(found),
            "158.00 MiB of 200.00 MiB (142.00 MiB for blocks, 16.00 MiB for other memory of the process; a "
            "reserve of "
            "32.00 MiB, 10.00 MiB in use before)");
  const MemoryParts asked = MemoryPartsOf({64 << 20, 0}, 200 << 20);
  EXPECT_EQ(asked.taken_bytes, 0u) << "it was not looked for";
  EXPECT_EQ(Text(asked),
            "64.00 MiB of 200.00 MiB (48.00 MiB for blocks, 16.00 MiB for other memory of the process)");
  EXPECT_EQ(MemoryPartsOf({8 << 20, 0}, 200 << 20).blocks_bytes, 0u) << "less than other memory may take";
}

}  // namespace
}  // namespace spillway::integration
