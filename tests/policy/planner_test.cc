#include "policy/planner.h"

#include <gtest/gtest.h>

#include <map>
#include <algorithm>
#include <set>

#include "policy/cycle.h"
#include "policy/range_max.h"
#include "policy/victim.h"
#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

TEST(RangeMaxTest, AgreesWithAPlainVector) {
  std::mt19937_64 random(3);
  for (const size_t size : {1u, 2u, 7u, 64u, 101u}) {
    std::vector<int64_t> plain(size);
    for (int64_t& value : plain) value = static_cast<int64_t>(random() % 100);
    RangeMax tree(plain);
    for (int i = 0; i < 2000; ++i) {
      const size_t begin = random() % (size + 1);
      const size_t end = begin + random() % (size + 1 - begin);
      const int64_t limit = static_cast<int64_t>(random() % 120);
      size_t back = end;
      while (back > begin && plain[back - 1] <= limit) --back;
      EXPECT_EQ(tree.FitsBackTo(begin, end, limit), back);
      if (begin < end) {
        EXPECT_EQ(tree.Max(begin, end), *std::max_element(plain.begin() + begin, plain.begin() + end));
      }
      const int64_t delta = static_cast<int64_t>(random() % 21) - 10;
      tree.Add(begin, end, delta);
      for (size_t at = begin; at < end; ++at) plain[at] += delta;
    }
  }
}

TEST(VictimTest, UnknownFirstByAgeThenFarthestNextUse) {
  const std::vector<VictimCandidate> candidates = {
      {1, 10, 90, 120}, {2, 10, 50, kNever}, {3, 10, 95, 300}, {4, 10, 20, kNever}, {5, 10, 10, 110}};
  EXPECT_EQ(SelectVictims(candidates, 1), (std::vector<uint32_t>{3}));
  EXPECT_EQ(SelectVictims(candidates, 25), (std::vector<uint32_t>{3, 1, 2}));
  EXPECT_EQ(SelectVictims(candidates, 1000), (std::vector<uint32_t>{3, 1, 2, 0, 4}));
  EXPECT_TRUE(SelectVictims(candidates, 0).empty());
  EXPECT_TRUE(SelectVictims({}, 5).empty());
}

std::shared_ptr<const MigrationPlan> PlanFor(const std::vector<TestLaunch>& step, const BlockSizes& sizes,
                                             const PlannerOptions& options) {
  Trace trace;
  Append(&trace, step);
  Append(&trace, step);
  return MakePlan(trace, step.size(), step.size(), sizes, options);
}

std::vector<PlanStep> StepsOf(const MigrationPlan& plan, PlanAction action) {
  std::vector<PlanStep> steps;
  for (const PlanStep& step : plan.steps) {
    if (step.action == action) steps.push_back(step);
  }
  return steps;
}

TEST(PlannerTest, NothingMovesWhenEverythingFits) {
  const auto plan = PlanFor({{1, {1, 2}}, {2, {3}}}, {{1, 4}, {2, 4}, {3, 4}}, {.budget_bytes = 12});
  ASSERT_NE(plan, nullptr);
  EXPECT_TRUE(plan->steps.empty());
  EXPECT_TRUE(plan->steady);
}

TEST(PlannerTest, NoPlanWhenALaunchDoesNotFit) {
  EXPECT_EQ(PlanFor({{1, {1, 2}}, {2, {3}}}, {{1, 8}, {2, 8}, {3, 4}}, {.budget_bytes = 12}), nullptr);
}

TEST(PlannerTest, ThreeBlocksInTurnWithRoomForTwo) {
  // Each launch uses one of three equal blocks; two fit. By hand: each round two of them must come back.
  const auto plan = PlanFor({{1, {1}}, {2, {2}}, {3, {3}}}, {{1, 4}, {2, 4}, {3, 4}},
                            {.budget_bytes = 8, .host_bytes = 100});
  ASSERT_NE(plan, nullptr);
  const std::vector<PlanStep> fetches = StepsOf(*plan, PlanAction::kFetch);
  const std::vector<PlanStep> drops = StepsOf(*plan, PlanAction::kDrop);
  EXPECT_EQ(fetches.size(), drops.size());
  EXPECT_EQ(StepsOf(*plan, PlanAction::kCopyOut).size(), drops.size());
  EXPECT_GE(fetches.size(), 1u);
  EXPECT_LE(fetches.size(), 3u);
  for (const PlanStep& step : plan->steps) EXPECT_EQ(step.tier, PlanTier::kHost);
}

TEST(PlannerTest, ForwardAndBackwardComesBackAheadOfNeed) {
  // Activations of a small network: written forwards, read backwards, freed after that. Budget for three of
  // five.
  Trace trace;
  const BlockSizes sizes = {{1, 4}, {2, 4}, {3, 4}, {4, 4}, {5, 4}};
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (uint64_t i = 1; i <= 5; ++i) {
      trace.AddAllocate(i, 4);
      trace.AddLaunch(i, std::vector<TraceBlock>{i});
    }
    for (uint64_t i = 5; i >= 1; --i) {
      trace.AddLaunch(10 + i, std::vector<TraceBlock>{i});
      trace.AddFree(i);
    }
  }
  const auto plan = MakePlan(trace, 10, 10, sizes, {.budget_bytes = 12, .host_bytes = 100});
  ASSERT_NE(plan, nullptr);
  EXPECT_TRUE(plan->steady);
  const std::vector<PlanStep> drops = StepsOf(*plan, PlanAction::kDrop);
  const std::vector<PlanStep> fetches = StepsOf(*plan, PlanAction::kFetch);
  // The first two leave right after their forward use. While 4 and 5 are there no room is left but for 3;
  // room for 2 comes when 5 is freed (before launch 6), for 1 when 4 is (before launch 7).
  ASSERT_EQ(drops.size(), 2u);
  EXPECT_EQ(drops[0].block, 1u);
  EXPECT_EQ(drops[0].launch, 0u);
  EXPECT_EQ(drops[1].block, 2u);
  EXPECT_EQ(drops[1].launch, 1u);
  ASSERT_EQ(fetches.size(), 2u);
  EXPECT_EQ(fetches[0].block, 2u);
  EXPECT_EQ(fetches[0].launch, 6u);
  EXPECT_EQ(fetches[0].needed, 8u);
  EXPECT_EQ(fetches[1].block, 1u);
  EXPECT_EQ(fetches[1].launch, 7u);
  EXPECT_EQ(fetches[1].needed, 9u);
}

TEST(PlannerTest, LongestAbsencesGoToDisk) {
  Trace trace;
  const BlockSizes sizes = {{1, 4}, {2, 4}, {3, 4}, {4, 4}, {5, 4}};
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (uint64_t i = 1; i <= 5; ++i) trace.AddLaunch(i, std::vector<TraceBlock>{i});
    for (uint64_t i = 5; i >= 1; --i) {
      trace.AddLaunch(10 + i, std::vector<TraceBlock>{i});
      trace.AddFree(i);
    }
  }
  const auto plan = MakePlan(trace, 10, 10, sizes, {.budget_bytes = 12, .host_bytes = 4});
  ASSERT_NE(plan, nullptr);
  for (const PlanStep& step : plan->steps) {
    EXPECT_EQ(step.tier, step.block == 1 ? PlanTier::kDisk : PlanTier::kHost);
  }
}

TEST(PlannerTest, TheWindowBoundsWhatIsFetchedAhead) {
  std::vector<TestLaunch> step;
  BlockSizes sizes;
  for (uint64_t i = 0; i < 40; ++i) {
    step.push_back({i, {i % 20}});
    sizes[i % 20] = 1;
  }
  const auto plan = PlanFor(step, sizes, {.budget_bytes = 12, .host_bytes = 100, .window_bytes = 2});
  ASSERT_NE(plan, nullptr);
  for (uint32_t position = 0; position < 40; ++position) {
    int ahead = 0;
    for (const PlanStep& fetch : StepsOf(*plan, PlanAction::kFetch)) {
      const uint32_t length = (fetch.needed + 40 - fetch.launch) % 40;
      ahead += (position + 40 - fetch.launch) % 40 < length;
    }
    EXPECT_LE(ahead, 2);
  }
}

// Carries a plan out over repeats of its period, transfers taking no time, and checks what a runner relies
// on.
class PlanWalk {
 public:
  PlanWalk(const RandomJob& job, const MigrationPlan& plan, Bytes budget)
      : job_(job), plan_(plan), budget_(budget) {}

  void Run() {
    for (lap_ = 0; lap_ < 4; ++lap_) {
      for (uint32_t position = 0; position < plan_.period; ++position) {
        Events(position);
        for (const PlanStep& step : plan_.steps) {
          if (step.action == PlanAction::kFetch && step.launch == position) Fetch(step.block);
        }
        for (const TraceBlock block : job_.step[position].blocks) Use(block);
        EXPECT_LE(Resident(), budget_) << "launch " << position;
        for (const PlanStep& step : plan_.steps) {
          if (step.action == PlanAction::kDrop && step.launch == position) away_.insert(step.block);
          if (step.action == PlanAction::kDrop && step.launch == position) there_.erase(step.block);
        }
      }
      Events(plan_.period);
    }
  }

 private:
  void Events(uint32_t position) {
    for (const auto& one : job_.temporaries) {
      if (one.freed != position) continue;
      there_.erase(one.block);
      away_.erase(one.block);
    }
  }
  void Fetch(TraceBlock block) {
    if (away_.erase(block) != 0) there_.insert(block);
  }
  void Use(TraceBlock block) {
    // In the first lap a block may be away because its fetch lies before the walk's start.
    EXPECT_FALSE(lap_ > 0 && away_.contains(block)) << "block " << block << " is not back in time";
    away_.erase(block);
    there_.insert(block);
  }
  Bytes Resident() const {
    if (lap_ == 0) return 0;  // before the cycle is steady
    Bytes bytes = 0;
    for (const TraceBlock block : there_) bytes += job_.sizes.at(block);
    return bytes;
  }

  const RandomJob& job_;
  const MigrationPlan& plan_;
  const Bytes budget_;
  std::set<TraceBlock> there_, away_;
  int lap_ = 0;
};

TEST(PlannerTest, PlansOfRandomJobsStayInTheBudgetAndBringEverythingBack) {
  std::mt19937_64 random(17);
  int steady = 0;
  int moved = 0;
  for (int round = 0; round < 500; ++round) {
    const RandomJob job = MakeRandomJob(&random);
    Bytes largest = 0;
    Bytes all = 0;
    for (const TestLaunch& launch : job.step) {
      Bytes bytes = 0;
      for (const TraceBlock block : launch.blocks) bytes += job.sizes.at(block);
      largest = std::max(largest, bytes);
    }
    for (const auto& [block, bytes] : job.sizes) all += bytes;
    const Bytes budget = largest + random() % (all + 1);
    Trace trace;
    for (int i = 0; i < 3; ++i) job.AppendStepTo(&trace);
    const uint32_t period = job.step.size();
    const auto plan =
        MakePlan(trace, period, period, job.sizes,
                 {.budget_bytes = budget, .host_bytes = random() % 50, .window_bytes = random() % 30 + 8});
    ASSERT_NE(plan, nullptr);
    EXPECT_EQ(MakePlan(trace, period, period, job.sizes, {.budget_bytes = largest - 1}), nullptr);
    moved += !plan->steps.empty();
    if (!plan->steady) continue;
    ++steady;
    PlanWalk(job, *plan, budget).Run();
  }
  EXPECT_GT(steady, 400);
  EXPECT_GT(moved, 200);
}

TEST(PlannerTest, OccupancyCountsEachBlockWhereItIs) {
  Trace trace;
  Append(&trace, {{1, {1}}, {2, {2}}, {3, {1}}});
  trace.AddFree(2);
  const Cycle cycle = MakeCycle(trace, 0, 3, {{1, 5}, {2, 7}});
  EXPECT_EQ(OccupancyOf(cycle, {}), (std::vector<int64_t>{5, 12, 12}));
  EXPECT_EQ(OccupancyOf(cycle, {{0, 0, 2, true}}), (std::vector<int64_t>{5, 7, 12}));
  EXPECT_EQ(OccupancyOf(cycle, {{1, 1, 3, false}}), (std::vector<int64_t>{5, 12, 5}));
}

}  // namespace
}  // namespace spillway::policy
