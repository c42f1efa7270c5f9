#include "policy/model/plan_cursor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace spillway::policy {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using BlockPlace = PlanBlockView::Place;

constexpr PlanTier kHost = PlanTier::kHost, kDisk = PlanTier::kDisk;

// Blocks as the test says, and a log of what was begun.
class Fake : public PlanMover {
 public:
  bool Visit(PlanBlock block, PlanTier tier,
             absl::FunctionRef<PlanMove(const PlanBlockView&)> decide) override {
    PlanBlockView& view = blocks[block];
    view.free_bytes = free_bytes;
    switch (decide(view)) {
      case PlanMove::kNothing: return false;
      case PlanMove::kEvict:
        log.push_back("evict " + std::to_string(block) + (tier == kHost ? " host" : " disk"));
        view.place = BlockPlace::kLeaving;
        return true;
      case PlanMove::kCopyOut:
        log.push_back("copy " + std::to_string(block));
        view.place = BlockPlace::kLeaving;
        return true;
      case PlanMove::kFetch:
        log.push_back("fetch " + std::to_string(block));
        view.place = BlockPlace::kArriving;
        free_bytes -= view.bytes;
        return true;
    }
    return false;
  }
  bool Completed(LaunchIndex launch) override { return launch < gpu || ahead.contains(launch); }
  LaunchIndex Launched() const override { return host; }
  bool IsBusy(PlanTier, size_t fetches, Bytes) const override { return fetches >= most_fetches; }
  double RateOut(PlanTier) const override { return 1e9; }

  void Put(PlanBlock block, BlockPlace place, PlanTier tier = kHost, Bytes bytes = 10) {
    PlanBlockView& view = blocks[block];
    view.place = place;
    view.live = view.may_leave = view.may_copy = view.may_return = true;
    view.tier = tier;
    view.bytes = view.copy_bytes = bytes;
  }
  std::vector<std::string> TakeLog() { return std::exchange(log, {}); }

  std::map<PlanBlock, PlanBlockView> blocks;
  LaunchIndex host = 0, gpu = 0;
  std::set<LaunchIndex> ahead;  // of the GPU's place, on other streams
  Bytes free_bytes = 100;
  size_t most_fetches = 2;
  std::vector<std::string> log;
};

PlanOp Op(PlanOpKind kind, TraceBlock block, uint32_t launch, uint32_t needed, PlanTier tier = kHost) {
  PlanOp op;
  op.kind = kind;
  op.tier = tier;
  op.launch = launch;
  op.needed = needed;
  op.block = block;
  return op;
}

// Ten launches of 100 ns; blocks are used where `uses` says. 50 bytes are expected of a budget of 100.
std::shared_ptr<MigrationPlan> PlanOf(const std::map<TraceBlock, std::set<uint32_t>>& uses,
                                      const std::vector<PlanOp>& ops) {
  auto plan = std::make_shared<MigrationPlan>();
  plan->iteration_launches = 10;
  plan->ops = ops;
  for (uint32_t position = 0; position < 10; ++position) {
    plan->launches.push_back({static_cast<uint32_t>(plan->uses.size()), 0});
    for (const auto& [block, positions] : uses) {
      if (!positions.contains(position)) continue;
      plan->uses.push_back(block);
      ++plan->launches.back().use_count;
    }
  }
  plan->expected_bytes.assign(10, 50);
  plan->durations.assign(10, 100);
  plan->budget_bytes = 100;
  return plan;
}

class PlanCursorTest : public testing::Test {
 protected:
  void Begin(const std::map<TraceBlock, std::set<uint32_t>>& uses, const std::vector<PlanOp>& ops) {
    cursor.Reset(PlanOf(uses, ops), fake.gpu);
  }
  std::vector<std::string> At(LaunchIndex gpu, LaunchIndex host, bool memory_wanted = false) {
    fake.gpu = gpu;
    fake.host = host;
    cursor.Poll(gpu, memory_wanted);
    return fake.TakeLog();
  }

  Fake fake;
  PlanCursor cursor{&fake};
};

TEST_F(PlanCursorTest, WithoutAPlanNothingIsDue) {
  fake.Put(1, BlockPlace::kAway);
  EXPECT_THAT(At(5, 5), IsEmpty());
  EXPECT_EQ(cursor.NextUse(1, 0), kNever);
  EXPECT_EQ(cursor.Now(), 5u);
}

TEST_F(PlanCursorTest, ADropStartsWhenItsLaunchHasCompletedInEveryIteration) {
  fake.Put(1, BlockPlace::kOnGpu);
  Begin({{1, {2, 8}}}, {Op(PlanOpKind::kDrop, 1, 2, 8, kDisk)});
  EXPECT_THAT(At(2, 3), IsEmpty());
  EXPECT_THAT(At(3, 3), ElementsAre("evict 1 disk"));
  fake.Put(1, BlockPlace::kOnGpu);
  EXPECT_THAT(At(12, 13), IsEmpty());
  fake.ahead = {12};  // the launch has completed on its stream, others have not
  EXPECT_THAT(At(11, 13), ElementsAre("evict 1 disk"));
}

TEST_F(PlanCursorTest, ADropIsLeftOutWhenItIsOvertakenOrHalfOver) {
  fake.Put(1, BlockPlace::kOnGpu);
  fake.Put(2, BlockPlace::kOnGpu);
  fake.Put(3, BlockPlace::kOnGpu);
  fake.blocks[1].used = 9;  // by launch 8, which the host has let go
  fake.blocks[3].may_leave = false;
  Begin({{1, {2, 8}}, {2, {0, 6}}, {3, {2, 9}}},
        {Op(PlanOpKind::kDrop, 2, 0, 6), Op(PlanOpKind::kDrop, 1, 2, 8), Op(PlanOpKind::kDrop, 3, 2, 9)});
  EXPECT_THAT(At(4, 9), IsEmpty());  // 2 x (4 - 0) > 6 - 0
  EXPECT_THAT(At(5, 9), IsEmpty());  // their turn is over
}

TEST_F(PlanCursorTest, ADropWaitsForACopyThatIsUnderWay) {
  fake.Put(1, BlockPlace::kLeaving);
  fake.Put(2, BlockPlace::kDraining);
  Begin({{1, {2, 12}}, {2, {2, 12}}}, {Op(PlanOpKind::kDrop, 1, 2, 9), Op(PlanOpKind::kDrop, 2, 2, 9)});
  EXPECT_THAT(At(3, 3), IsEmpty());
  fake.Put(1, BlockPlace::kOnGpu);
  EXPECT_THAT(At(4, 4), ElementsAre("evict 1 host"));
  fake.Put(2, BlockPlace::kOnGpu);
  fake.blocks[2].used = 5;  // by launch 4: it stays
  EXPECT_THAT(At(5, 5), IsEmpty());
}

TEST_F(PlanCursorTest, AFetchIsLookedAtWhenTheQueueOfItsTierMayStartAnother) {
  fake.most_fetches = 1;
  Begin({{1, {0, 5}}, {2, {0, 6}}, {3, {0, 7}}},
        {Op(PlanOpKind::kFetch, 1, 1, 5), Op(PlanOpKind::kFetch, 2, 1, 6),
         Op(PlanOpKind::kFetch, 3, 1, 7, kDisk)});
  fake.Put(1, BlockPlace::kAway, kHost);
  fake.Put(2, BlockPlace::kAway, kDisk);  // not where the plan sent it
  fake.Put(3, BlockPlace::kAway, kDisk);
  EXPECT_THAT(At(1, 2), ElementsAre("fetch 1", "fetch 3"));
  fake.Put(1, BlockPlace::kOnGpu);
  fake.Put(3, BlockPlace::kOnGpu);
  EXPECT_THAT(At(2, 2), ElementsAre("fetch 2"));
}

TEST_F(PlanCursorTest, ACopyWaitsForALongEnoughIdleInterval) {
  fake.Put(1, BlockPlace::kOnGpu, kHost, 100);  // 100 ns to copy
  Begin({{1, {0, 2, 7}}}, {Op(PlanOpKind::kCopyOut, 1, 0, 7)});
  EXPECT_THAT(At(1, 1), IsEmpty());  // used again in 100 ns
  EXPECT_THAT(At(3, 3), ElementsAre("copy 1"));
  fake.Put(1, BlockPlace::kOnGpu, kHost, 100);  // a launch took it back
  EXPECT_THAT(At(4, 4), ElementsAre("copy 1"));
  fake.Put(1, BlockPlace::kOnGpu, kHost, 100);
  fake.blocks[1].copied = true;
  EXPECT_THAT(At(5, 5), IsEmpty());
}

// A launch needs the memory of what leaves: a copy that nobody waits for must not be before it in the disk's queue.
TEST_F(PlanCursorTest, ACopyToTheDiskWaitsForEvictionsToIt) {
  for (const PlanBlock block : {1, 2, 3}) fake.Put(block, BlockPlace::kOnGpu);
  fake.blocks[1].copy_bytes = fake.blocks[3].copy_bytes = 10;
  Begin({{1, {0, 8}}, {2, {0, 9}}, {3, {0, 8}}},
        {Op(PlanOpKind::kDrop, 2, 0, 9, kDisk), Op(PlanOpKind::kCopyOut, 1, 0, 7, kDisk),
         Op(PlanOpKind::kCopyOut, 3, 0, 7, kHost)});
  EXPECT_THAT(At(1, 1), ElementsAre("evict 2 disk", "copy 3")) << "another tier has a queue of its own";
  EXPECT_THAT(At(2, 2), IsEmpty());
  fake.Put(2, BlockPlace::kAway);
  EXPECT_THAT(At(3, 3), ElementsAre("copy 1"));
}

// Transfers to the host are short: a copy that waits would be late for the block's own drop.
TEST_F(PlanCursorTest, ACopyToTheHostWaitsForNoEviction) {
  for (const PlanBlock block : {1, 2}) fake.Put(block, BlockPlace::kOnGpu);
  fake.blocks[1].copy_bytes = 10;
  Begin({{1, {0, 8}}, {2, {0, 9}}},
        {Op(PlanOpKind::kDrop, 2, 0, 9, kHost), Op(PlanOpKind::kCopyOut, 1, 0, 7, kHost)});
  EXPECT_THAT(At(1, 1), ElementsAre("evict 2 host", "copy 1"));
}

TEST_F(PlanCursorTest, ACopyWhoseDropHasComeIsMadeByTheDrop) {
  fake.Put(1, BlockPlace::kOnGpu);
  Begin({{1, {0, 2, 9}}}, {Op(PlanOpKind::kCopyOut, 1, 0, 2), Op(PlanOpKind::kDrop, 1, 2, 9),
                           Op(PlanOpKind::kCopyOut, 1, 9, 9)});
  EXPECT_THAT(At(3, 3), ElementsAre("evict 1 host"));
  fake.Put(1, BlockPlace::kOnGpu);
  EXPECT_THAT(At(10, 10), IsEmpty());
}

TEST_F(PlanCursorTest, FetchesGoInTheOrderOfNeedAndOneThatMustWaitBlocksItsOwnTier) {
  const std::map<TraceBlock, std::set<uint32_t>> uses = {{1, {0, 6}}, {2, {0, 5}}, {3, {0, 7}}, {4, {0, 8}}};
  Begin(uses, {Op(PlanOpKind::kFetch, 1, 1, 6), Op(PlanOpKind::kFetch, 2, 1, 5),
               Op(PlanOpKind::kFetch, 3, 1, 7), Op(PlanOpKind::kFetch, 4, 1, 8, kDisk)});
  fake.Put(1, BlockPlace::kAway, kHost, 60);  // more than the headroom
  fake.Put(2, BlockPlace::kAway, kHost, 20);
  fake.Put(3, BlockPlace::kAway, kHost, 1);
  fake.Put(4, BlockPlace::kAway, kDisk, 20);
  EXPECT_THAT(At(1, 2, /*memory_wanted=*/true), IsEmpty());
  EXPECT_THAT(At(1, 2), ElementsAre("fetch 2", "fetch 4"));
  fake.Put(2, BlockPlace::kOnGpu);
  EXPECT_THAT(At(2, 2), IsEmpty());
  EXPECT_THAT(At(2, 6), ElementsAre("fetch 1"));  // the host asks for it next
}

TEST_F(PlanCursorTest, WhatLacksOnlyFreeMemorySaysSo) {
  fake.free_bytes = 10;
  Begin({{1, {0, 6}}}, {Op(PlanOpKind::kFetch, 1, 1, 6)});
  fake.Put(1, BlockPlace::kAway, kHost, 20);
  EXPECT_THAT(At(1, 2), IsEmpty());
  EXPECT_EQ(cursor.bytes_wanted(), 20u);
  fake.free_bytes = 20;
  EXPECT_THAT(At(1, 2), ElementsAre("fetch 1"));
  EXPECT_EQ(cursor.bytes_wanted(), 0u);
}

TEST_F(PlanCursorTest, AFetchThatWasTakenBackWaitsAnewAndGivesItsHeadroomBack) {
  fake.most_fetches = 1;
  fake.free_bytes = 200;
  Begin({{1, {0, 6}}, {2, {0, 8}}}, {Op(PlanOpKind::kFetch, 1, 1, 6), Op(PlanOpKind::kFetch, 2, 1, 8)});
  fake.Put(1, BlockPlace::kAway, kHost, 40);
  fake.Put(2, BlockPlace::kAway, kHost, 40);
  EXPECT_THAT(At(1, 2), ElementsAre("fetch 1"));
  fake.Put(1, BlockPlace::kAway, kHost, 40);
  EXPECT_THAT(At(2, 2), ElementsAre("fetch 1"));
  fake.Put(1, BlockPlace::kOnGpu);
  EXPECT_THAT(At(3, 7), IsEmpty());  // no headroom beside it up to launch 6
  EXPECT_THAT(At(6, 7), ElementsAre("fetch 2"));
}

TEST_F(PlanCursorTest, WhatIsAwayAtTheStartOrLeavesUnplannedComesBackForItsNextUse) {
  fake.Put(1, BlockPlace::kAway);
  fake.Put(2, BlockPlace::kOnGpu);
  Begin({{1, {4}}, {2, {6}}}, {});
  EXPECT_EQ(cursor.NextUse(1, 5), 14u);
  EXPECT_THAT(At(0, 1), ElementsAre("fetch 1"));
  fake.Put(2, BlockPlace::kAway);
  cursor.RecordUnplanned(2, 10, 0);
  EXPECT_THAT(At(1, 1), ElementsAre("fetch 2"));
}

TEST_F(PlanCursorTest, WhatIsThereThoughItsCopyHasNotEndedIsNotExpectedBack) {
  fake.Put(1, BlockPlace::kDraining);
  Begin({{1, {4}}}, {});
  fake.Put(1, BlockPlace::kAway);  // by a victim's eviction, of which the plan would have been told
  EXPECT_THAT(At(0, 1), IsEmpty());
}

TEST_F(PlanCursorTest, ACopyThatWasTakenBackIsMadeAgainOnceItHasEnded) {
  Begin({{1, {0, 8}}}, {Op(PlanOpKind::kCopyOut, 1, 0, 8)});
  fake.Put(1, BlockPlace::kOnGpu);
  EXPECT_THAT(At(1, 1), ElementsAre("copy 1"));
  fake.Put(1, BlockPlace::kDraining);
  EXPECT_THAT(At(2, 2), IsEmpty());
  fake.Put(1, BlockPlace::kOnGpu);
  EXPECT_THAT(At(3, 3), ElementsAre("copy 1"));
}

}  // namespace
}  // namespace spillway::policy
