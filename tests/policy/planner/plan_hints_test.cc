#include "policy/planner/plan_hints.h"

#include <gtest/gtest.h>

namespace spillway::policy {
namespace {

// An iteration of ten launches: weight 1 + k is used by launch k and by 9 - k; launch 3 hands out block 100,
// launch 6 uses it and it is freed.
class PlanHintsTest : public testing::Test {
 protected:
  static constexpr TraceBlock kHandedOut = 100;
  PlanHintsTest() {
    for (uint32_t k = 0; k < 10; ++k) {
      if (k == 3) iteration_.AddAllocate(kHandedOut, 4096);
      std::vector<TraceBlock> blocks = {WeightOf(k)};
      if (k == 3 || k == 6) blocks.push_back(kHandedOut);
      iteration_.AddLaunch(TagOf(k), blocks);
      if (k == 6) iteration_.AddFree(kHandedOut);
    }
    plan_.start = 20;
    plan_.iteration_launches = 10;
    plan_.launches.resize(10);
    for (const TraceBlock block : {WeightOf(1), kHandedOut}) {
      for (const PlanOpKind kind : {PlanOpKind::kCopyOut, PlanOpKind::kDrop, PlanOpKind::kFetch}) {
        PlanOp op;
        op.kind = kind;
        op.block = block;
        plan_.ops.push_back(op);
      }
    }
    plan_.expected_bytes.assign(10, 8192);
    plan_.budget_bytes = 8192;
  }
  static TraceBlock WeightOf(uint32_t position) { return 1 + std::min(position, 9 - position); }
  static uint64_t TagOf(uint32_t position) { return position < 5 ? 1000 : 2000; }
  // The job's next launch; whether the hints have changed.
  bool Follow(PlanHints* hints, LaunchIndex index, uint64_t tag, std::vector<TraceBlock> blocks) {
    return hints->Follow(index, LaunchRecord{tag, SignatureOf(tag, blocks), blocks});
  }

  Trace iteration_;
  MigrationPlan plan_;
};

TEST_F(PlanHintsTest, WhatPersistsIsFetchedAndCopiedOutAndNothingIsDropped) {
  PlanHints hints(iteration_, plan_);
  ASSERT_NE(hints.Plan(), nullptr);
  EXPECT_TRUE(hints.Plan()->hints);
  EXPECT_EQ(hints.Plan()->start, 20u);
  ASSERT_EQ(hints.Plan()->ops.size(), 2u);
  EXPECT_EQ(hints.Plan()->ops[0].kind, PlanOpKind::kCopyOut);
  EXPECT_EQ(hints.Plan()->ops[1].kind, PlanOpKind::kFetch);
  EXPECT_EQ(hints.Plan()->ops[0].block, WeightOf(1));
  EXPECT_EQ(hints.Plan()->expected_bytes, plan_.expected_bytes);
  EXPECT_GT(hints.Plan()->budget_bytes, plan_.budget_bytes) << "free memory alone says what fits";
}

TEST_F(PlanHintsTest, LaunchesOfThePlanLeaveItWhereItIsWhateverElseTheyName) {
  PlanHints hints(iteration_, plan_);
  const auto before = hints.Plan();
  for (uint32_t k = 0; k < 10; ++k)
    EXPECT_FALSE(Follow(&hints, 30 + k, TagOf(k), {WeightOf(k), 200 + k})) << k;
  EXPECT_EQ(hints.Plan(), before);
}

TEST_F(PlanHintsTest, ItsPlaceMovesToTheNearestLaunchThatFits) {
  PlanHints hints(iteration_, plan_);
  EXPECT_TRUE(Follow(&hints, 31, TagOf(4), {WeightOf(4)})) << "three launches were left out";
  EXPECT_EQ(hints.Plan()->PositionOf(31), 4u);
  EXPECT_TRUE(Follow(&hints, 32, TagOf(3), {WeightOf(3)})) << "back";
  EXPECT_EQ(hints.Plan()->PositionOf(32), 3u);
  EXPECT_TRUE(Follow(&hints, 33, TagOf(9), {WeightOf(9)})) << "around the end: 4 is expected";
  EXPECT_EQ(hints.Plan()->PositionOf(33), 9u);
  EXPECT_FALSE(Follow(&hints, 34, TagOf(0), {WeightOf(0)}));
}

TEST_F(PlanHintsTest, AnotherFunctionOrAnotherWeightIsNoPlace) {
  PlanHints hints(iteration_, plan_);
  const auto before = hints.Plan();
  EXPECT_FALSE(Follow(&hints, 31, TagOf(0), {WeightOf(0), WeightOf(1)}));
  EXPECT_FALSE(Follow(&hints, 32, 3000, {WeightOf(2)}));
  EXPECT_EQ(hints.Plan(), before);
}

TEST_F(PlanHintsTest, AQuarterOfAnIterationWithoutAPlaceEndsIt) {
  PlanHints hints(iteration_, plan_);
  EXPECT_FALSE(Follow(&hints, 30, 3000, {}));
  EXPECT_FALSE(Follow(&hints, 31, 3000, {}));
  EXPECT_FALSE(Follow(&hints, 32, TagOf(2), {WeightOf(2)})) << "that begins to count anew";
  EXPECT_FALSE(Follow(&hints, 33, 3000, {}));
  EXPECT_FALSE(Follow(&hints, 34, 3000, {}));
  EXPECT_TRUE(Follow(&hints, 35, 3000, {}));
  EXPECT_EQ(hints.Plan(), nullptr);
  EXPECT_FALSE(Follow(&hints, 36, TagOf(6), {WeightOf(6)}));
}

TEST_F(PlanHintsTest, LaunchesBeforeThePlansStartSayNothing) {
  PlanHints hints(iteration_, plan_);
  EXPECT_FALSE(Follow(&hints, 19, TagOf(4), {WeightOf(4)}));
  EXPECT_EQ(hints.Plan()->start, 20u);
}

}  // namespace
}  // namespace spillway::policy
