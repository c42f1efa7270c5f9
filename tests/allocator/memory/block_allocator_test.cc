#include "allocator/memory/block_allocator.h"

#include <gtest/gtest.h>

namespace spillway::allocator {
namespace {

TEST(BlockAllocatorTest, HandsOutTheLowestAddressOfThatStreamAndSize) {
  BlockAllocator kept;
  const auto stream = reinterpret_cast<CUstream>(0x10);
  kept.Add(stream, 2, 0x3000, BlockId(0, 3));
  kept.Add(stream, 2, 0x1000, BlockId(0, 1));
  kept.Add(stream, 4, 0x0500, BlockId(0, 2));
  kept.Add(nullptr, 2, 0x0100, BlockId(0, 4));
  EXPECT_EQ(kept.Take(stream, 2), BlockId(0, 1));
  EXPECT_EQ(kept.Take(stream, 2), BlockId(0, 3));
  EXPECT_EQ(kept.Take(stream, 2), std::nullopt);
  EXPECT_EQ(kept.Take(stream, 3), std::nullopt);
  EXPECT_EQ(kept.size(), 2u);
}

TEST(BlockAllocatorTest, AnAddressThatIsRemovedIsNotTaken) {
  BlockAllocator kept;
  kept.Add(nullptr, 1, 0x1000, BlockId(0, 1));
  kept.Add(nullptr, 1, 0x2000, BlockId(0, 2));
  kept.Remove(nullptr, 1, 0x1000);
  EXPECT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept.Take(nullptr, 1), BlockId(0, 2));
  EXPECT_EQ(kept.Take(nullptr, 1), std::nullopt);
}

TEST(BlockAllocatorTest, ManySizesComeAndGo) {
  // More sizes than empty lists and spare nodes are kept.
  BlockAllocator kept;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 1; i <= 1000; ++i) kept.Add(nullptr, i, 0x1000 * i, BlockId(0, i));
    EXPECT_EQ(kept.size(), 1000u);
    for (uint32_t i = 1; i <= 1000; i += 2) kept.Remove(nullptr, i, 0x1000 * i);
    for (uint32_t i = 1; i <= 1000; ++i) {
      EXPECT_EQ(kept.Take(nullptr, i), i % 2 == 1 ? std::nullopt : std::optional(BlockId(0, i)));
    }
    EXPECT_EQ(kept.size(), 0u);
  }
}

TEST(BlockAllocatorTest, AnAddressThatWasTakenComesBackUnderAnotherSizeAndStream) {
  BlockAllocator kept;
  const auto stream = reinterpret_cast<CUstream>(0x10);
  kept.Add(stream, 2, 0x1000, BlockId(0, 1));
  EXPECT_EQ(kept.Take(stream, 2), BlockId(0, 1));
  kept.Add(nullptr, 4, 0x5000, BlockId(0, 7));
  kept.Add(nullptr, 4, 0x4000, BlockId(0, 8));
  EXPECT_EQ(kept.Take(stream, 2), std::nullopt);
  EXPECT_EQ(kept.Take(nullptr, 4), BlockId(0, 8));
  EXPECT_EQ(kept.Take(nullptr, 4), BlockId(0, 7));
}

TEST(BlockAllocatorDeathTest, RemovingWhatIsNotThereStops) {
  BlockAllocator kept;
  EXPECT_DEATH(kept.Remove(nullptr, 1, 0x1000), "CHECK failed");
  kept.Add(nullptr, 1, 0x1000, BlockId(0, 1));
  EXPECT_DEATH(kept.Remove(nullptr, 1, 0x2000), "CHECK failed");
}

TEST(BlockAllocatorDeathTest, AddressTwiceStops) {
  BlockAllocator kept;
  kept.Add(nullptr, 1, 0x1000, BlockId(0, 1));
  EXPECT_DEATH(kept.Add(nullptr, 1, 0x1000, BlockId(0, 2)), "CHECK failed");
}

}  // namespace
}  // namespace spillway::allocator
