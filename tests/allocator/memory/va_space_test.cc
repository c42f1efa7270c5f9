// Base 0x1000000 and chunks of 0x100, unless a test is about multiples of 4 GiB.

#include "allocator/memory/va_space.h"

#include <gtest/gtest.h>

namespace spillway::allocator {
namespace {

TEST(VaSpaceTest, LeavesOneChunkBeforeAndBehindEachBlock) {
  VaSpace space(0x1000000, 10 * 0x100, 0x100);
  EXPECT_EQ(space.Allocate(2).value(), 0x1000100u);
  EXPECT_EQ(space.Allocate(1).value(), 0x1000400u);  // 2 chunks and a guard behind the first
  EXPECT_EQ(space.free_bytes(), (10 - 1 - 3 - 2) * 0x100u);
  space.CheckInvariants();
}

TEST(VaSpaceTest, TakesTheLowestRangeThatFitsAndJoinsNeighbors) {
  VaSpace space(0x1000000, 12 * 0x100, 0x100);
  const uint64_t a = space.Allocate(1).value();
  const uint64_t b = space.Allocate(2).value();
  const uint64_t c = space.Allocate(1).value();
  space.Free(a, 1);
  EXPECT_EQ(space.Allocate(2).value(), c + 0x200);  // a's hole holds one chunk and its guard
  space.Free(b, 2);                                 // joins with a's hole: 5 chunks
  EXPECT_EQ(space.Allocate(4).value(), a);
  space.CheckInvariants();
}

TEST(VaSpaceTest, RefusesWhatDoesNotFitAndRecovers) {
  VaSpace space(0x1000000, 4 * 0x100, 0x100);
  EXPECT_EQ(space.Allocate(3).status().code(), absl::StatusCode::kResourceExhausted);
  const uint64_t all = space.Allocate(2).value();
  EXPECT_EQ(space.free_bytes(), 0u);
  EXPECT_FALSE(space.Allocate(1).ok());
  space.Free(all, 2);
  EXPECT_EQ(space.Allocate(2).value(), all);
}

TEST(VaSpaceTest, KeepsOffMultiplesOf4GiB) {
  constexpr uint64_t kMiB2 = 2 << 20, kBase = uint64_t{1} << 40, kStride = uint64_t{1} << 32;
  VaSpace space(kBase, 4 * kStride, kMiB2);
  // Neither a block nor the end of one is next to the chunks that hold multiple - 1 and multiple.
  EXPECT_EQ(space.Allocate(1).value(), kBase + 2 * kMiB2);
  const uint64_t most = (kStride - 3 * kMiB2) / kMiB2 - 1;  // chunks between two multiples, less a guard
  EXPECT_EQ(space.Allocate(most).value(), kBase + kStride + 2 * kMiB2);
  EXPECT_EQ(space.Allocate(most - 2).value(), kBase + 4 * kMiB2);  // what is left below, to its end
  EXPECT_EQ(space.Allocate(1).value(), kBase + 2 * kStride + 2 * kMiB2);
  space.CheckInvariants();
}

TEST(VaSpaceTest, LongBlocksLieAcrossMultiplesOf4GiB) {
  constexpr uint64_t kMiB2 = 2 << 20, kBase = uint64_t{1} << 40, kStride = uint64_t{1} << 32;
  VaSpace space(kBase, 4 * kStride, kMiB2);
  const uint64_t address = space.Allocate(2 * kStride / kMiB2).value();
  EXPECT_EQ(address, kBase + kMiB2);
  space.Free(address, 2 * kStride / kMiB2);
  EXPECT_EQ(space.free_bytes(), 4 * kStride - kMiB2);
  space.CheckInvariants();
}

TEST(VaSpaceDeathTest, FreeOfAFreeRangeStops) {
  VaSpace space(0x1000000, 10 * 0x100, 0x100);
  const uint64_t a = space.Allocate(2).value();
  space.Free(a, 2);
  EXPECT_DEATH(space.Free(a, 2), "CHECK failed");
}

}  // namespace
}  // namespace spillway::allocator
