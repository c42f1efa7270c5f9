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

TEST(BlockAllocatorDeathTest, AddressTwiceStops) {
  BlockAllocator kept;
  kept.Add(nullptr, 1, 0x1000, BlockId(0, 1));
  EXPECT_DEATH(kept.Add(nullptr, 1, 0x1000, BlockId(0, 2)), "CHECK failed");
}

}  // namespace
}  // namespace spillway::allocator
