// The set of blocks that a launch names.

#include "allocator/memory/block_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace spillway::allocator {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

std::vector<BlockId> BlocksOf(const AccessSet& set) { return {set.begin(), set.end()}; }

TEST(AccessSetTest, KeepsOrderWithoutRepeats) {
  AccessSet set;
  for (uint32_t index : {3, 1, 3, 2, 1}) set.Add(BlockId(1, index));
  set.Add(BlockId(0, 9));
  EXPECT_THAT(BlocksOf(set), ElementsAre(BlockId(1, 3), BlockId(1, 1), BlockId(1, 2), BlockId(0, 9)));
}

TEST(AccessSetTest, TellsBlocksWithEqualLowBitsApartAndForgetsEarlierSets) {
  AccessSet set;
  for (int round = 0; round < 3; ++round) {
    set.Clear();
    EXPECT_TRUE(set.empty());
    std::vector<BlockId> expected;
    // Ids that differ in high bits only, and in the device, each twice, and more than the set's memory is for
    // at first.
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (uint32_t i = 1; i <= 600; ++i) {
        const BlockId id(static_cast<int>(i % 3), 1 + (i / 4 + 17 * static_cast<uint32_t>(round)) * 4096);
        const bool known = std::find(expected.begin(), expected.end(), id) != expected.end();
        if (!known) expected.push_back(id);
        set.Add(id);
      }
    }
    EXPECT_THAT(BlocksOf(set), ElementsAreArray(expected));
    const AccessSet copy = set;
    EXPECT_THAT(BlocksOf(copy), ElementsAreArray(expected));
  }
}

}  // namespace
}  // namespace spillway::allocator
