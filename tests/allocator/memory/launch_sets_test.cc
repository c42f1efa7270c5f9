// LaunchSets: which of the launches' blocks count, and how much memory the largest set needs.

#include "allocator/memory/launch_sets.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "tests/sizes.h"

namespace spillway::allocator {
namespace {

// Blocks of one device, and the sets that launches name of them.
class LaunchSetsTest : public testing::Test {
 protected:
  BlockId Add(uint64_t bytes) {
    const BlockId id(0, static_cast<uint32_t>(blocks_.size() + 1));
    blocks_[id.index()] = {id, bytes, /*live=*/true, /*pinned=*/false};
    sets_.OnHandOut(id, bytes);
    return id;
  }
  void SetLive(BlockId id, bool live) {
    LaunchSets::Member& block = blocks_.at(id.index());
    block.live = live;
    live ? sets_.OnHandOut(id, block.bytes) : sets_.OnFree(id, block.bytes);
  }
  void SetPinned(BlockId id, bool pinned) {
    LaunchSets::Member& block = blocks_.at(id.index());
    block.pinned = pinned;
    pinned ? sets_.OnPinned(id, block.bytes) : sets_.OnUnpinned(id, block.bytes);
  }
  void Launch(const std::vector<BlockId>& ids) {
    std::vector<LaunchSets::Member> named;
    for (const BlockId id : ids) named.push_back(blocks_.at(id.index()));
    sets_.Record(named);
  }
  void Check() {
    sets_.CheckInvariants([this](BlockId id) { return blocks_.at(id.index()); });
  }

  std::map<uint32_t, LaunchSets::Member> blocks_;
  LaunchSets sets_;
};

TEST_F(LaunchSetsTest, TheLargestSetCountsEachLiveBlockOnce) {
  EXPECT_EQ(sets_.largest_bytes(), 0u);
  const BlockId a = Add(2 * kMiB);
  const BlockId b = Add(3 * kMiB);
  const BlockId freed = Add(7 * kMiB);
  SetLive(freed, false);
  Launch({a, b, a, freed});
  EXPECT_EQ(sets_.largest_bytes(), 5 * kMiB);
  Launch({b});
  EXPECT_EQ(sets_.largest_bytes(), 5 * kMiB);
  Check();
}

TEST_F(LaunchSetsTest, AFreedBlockCountsAgainOnceItIsHandedOutAgain) {
  const BlockId a = Add(2 * kMiB);
  const BlockId b = Add(3 * kMiB);
  Launch({a, b});
  SetLive(a, false);
  EXPECT_EQ(sets_.largest_bytes(), 3 * kMiB);
  Check();
  SetLive(a, true);
  EXPECT_EQ(sets_.largest_bytes(), 5 * kMiB);
  SetLive(a, false);
  SetLive(b, false);
  EXPECT_EQ(sets_.largest_bytes(), 0u);
  EXPECT_EQ(sets_.peak_bytes(), 5 * kMiB);
  Check();
}

TEST_F(LaunchSetsTest, PinnedBlocksNeedNoHeadroom) {
  const BlockId a = Add(4 * kMiB);
  const BlockId b = Add(1 * kMiB);
  Launch({a, b});
  SetPinned(a, true);
  EXPECT_EQ(sets_.largest_bytes(), 5 * kMiB);
  EXPECT_EQ(sets_.largest_movable_bytes(), kMiB);
  Launch({a});  // pinned before its launch
  EXPECT_EQ(sets_.largest_movable_bytes(), kMiB);
  SetPinned(a, false);
  EXPECT_EQ(sets_.largest_movable_bytes(), 5 * kMiB);
  Check();
}

TEST_F(LaunchSetsTest, ANewSetReplacesTheSmallest) {
  std::vector<BlockId> blocks;
  for (int i = 0; i < LaunchSets::kSets; ++i) {
    blocks.push_back(Add((10 + static_cast<uint64_t>(i)) * kMiB));
    Launch({blocks.back()});
  }
  const BlockId last = Add(5 * kMiB);
  Launch({last});  // in the place of blocks[0]'s
  for (int i = 1; i < LaunchSets::kSets; ++i) SetLive(blocks[static_cast<size_t>(i)], false);
  EXPECT_EQ(sets_.largest_bytes(), 5 * kMiB);
  Check();
}

TEST_F(LaunchSetsTest, DestroyedRecordsAndDeadSetsAreForgotten) {
  const BlockId a = Add(2 * kMiB);
  const BlockId b = Add(3 * kMiB);
  Launch({a, b});
  SetLive(a, false);
  sets_.OnDestroy(a, 2 * kMiB);
  EXPECT_EQ(sets_.largest_bytes(), 3 * kMiB);
  SetLive(a, true);  // the record serves another address: no launch has named that
  EXPECT_EQ(sets_.largest_bytes(), 3 * kMiB);
  SetLive(b, false);
  sets_.ForgetDead();
  SetLive(b, true);
  EXPECT_EQ(sets_.largest_bytes(), 0u);
  Check();
}

}  // namespace
}  // namespace spillway::allocator
