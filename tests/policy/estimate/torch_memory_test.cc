#include "policy/estimate/torch_memory.h"

#include <gtest/gtest.h>

#include "tests/sizes.h"

namespace spillway::policy {
namespace {

TEST(TorchMemoryTest, RoundsTo512Bytes) {
  TorchMemory memory;
  EXPECT_EQ(memory.SizeOf(memory.Allocate(1)), 512u);
  EXPECT_EQ(memory.SizeOf(memory.Allocate(513)), 1024u);
  EXPECT_EQ(memory.allocated(), 1536u);
}

// One segment each: small blocks 2 MiB, below 10 MiB 20 MiB, larger ones their size in whole 2 MiB.
TEST(TorchMemoryTest, HasSegmentsOfThreeKinds) {
  TorchMemory memory;
  memory.Allocate(1000);
  EXPECT_EQ(memory.peak_reserved(), 2 * kMiB);
  memory.Allocate(11 * kMiB);
  EXPECT_EQ(memory.peak_reserved(), 14 * kMiB);  // 12 MiB
  memory.Allocate(3 * kMiB);
  EXPECT_EQ(memory.peak_reserved(), 34 * kMiB);
  memory.Allocate(16 * kMiB);  // of the 20, too
  EXPECT_EQ(memory.peak_reserved(), 34 * kMiB);
}

// The rest of a large block is split off only if it is more than 1 MiB.
TEST(TorchMemoryTest, HandsABlockOutWholeWhereLittleIsLeft) {
  TorchMemory memory;
  const auto block = memory.Allocate(16 * kMiB);
  memory.Free(block);
  const auto again = memory.Allocate(15 * kMiB);
  EXPECT_EQ(again, block);
  EXPECT_EQ(memory.SizeOf(again), 16 * kMiB);
  memory.Free(again);
  EXPECT_EQ(memory.SizeOf(memory.Allocate(14 * kMiB)), 14 * kMiB);
  EXPECT_EQ(memory.peak_reserved(), 16 * kMiB);
}

TEST(TorchMemoryTest, TakesTheBestFitAndJoinsNeighbors) {
  TorchMemory memory;
  const auto large = memory.Allocate(40 * kMiB), fitting = memory.Allocate(12 * kMiB);
  memory.Free(large);
  memory.Free(fitting);
  EXPECT_EQ(memory.Allocate(12 * kMiB), fitting);
  const auto a = memory.Allocate(20 * kMiB), b = memory.Allocate(20 * kMiB);  // both of the 40
  EXPECT_EQ(memory.peak_reserved(), 52 * kMiB);
  memory.Free(a);
  memory.Free(b);
  EXPECT_EQ(memory.SizeOf(memory.Allocate(40 * kMiB)), 40 * kMiB);
  EXPECT_EQ(memory.peak_reserved(), 52 * kMiB);
}

TEST(TorchMemoryTest, NeverJoinsSegments) {
  TorchMemory memory;
  const auto a = memory.Allocate(12 * kMiB), b = memory.Allocate(12 * kMiB);
  memory.Free(a);
  memory.Free(b);
  memory.Allocate(24 * kMiB);
  EXPECT_EQ(memory.peak_reserved(), 48 * kMiB);
}

TEST(TorchMemoryTest, RemembersThePeak) {
  TorchMemory memory;
  const auto a = memory.Allocate(12 * kMiB);
  memory.Free(a);
  memory.Allocate(512);
  EXPECT_EQ(memory.allocated(), 512u);
  EXPECT_EQ(memory.peak_allocated(), 12 * kMiB);
}

}  // namespace
}  // namespace spillway::policy
