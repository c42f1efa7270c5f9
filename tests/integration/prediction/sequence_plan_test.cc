#include "integration/prediction/sequence_plan.h"

#include <gtest/gtest.h>

#include "tests/policy/job_traces.h"

namespace spillway::integration {
namespace {

// ---- The plan of one sequence.

TEST(SequencePlanTest, AJobThatRepeatsItselfGetsAPlanThatLeavesLessFree) {
  const policy::TrainingJob job;
  const policy::KernelTimes times = job.Times();
  const policy::WriteFacts writes = job.Facts();
  policy::RuntimeMachine machine;
  machine.machine.gpu_bytes = 320 << 20;
  machine.machine.pcie_in = machine.machine.pcie_out = 2e9;
  machine.machine.host_bytes = 1 << 30;
  machine.run_ahead = policy::RunAhead();
  SequencePlan plan(job.Record(1), job.Sizes(), machine, {&times, &writes});
  const auto improve = [&plan] {
    int slices = 0;
    while (plan.Improve()) ++slices;
    return slices;
  };
  improve();
  const auto first = plan.From(0);
  ASSERT_NE(first, nullptr);
  const policy::Nanos forecast = plan.forecast().iteration;
  plan.RecordIterations(policy::kSteadyIterations - 1);
  EXPECT_EQ(improve(), 0);
  plan.RecordIterations(policy::kSteadyIterations);
  EXPECT_FALSE(plan.HasBetter()) << "it has had no trials";
  EXPECT_GT(improve(), 0);
  ASSERT_TRUE(plan.HasBetter());
  const auto steady = plan.From(0);
  EXPECT_GT(steady->budget_bytes, first->budget_bytes);
  EXPECT_LT(steady->run_ahead.launches, first->run_ahead.launches);
  EXPECT_LT(plan.forecast().iteration, forecast);
  plan.RecordIterations(0);  // it departed, and has come back
  EXPECT_TRUE(plan.HasBetter());
  EXPECT_EQ(plan.From(0)->budget_bytes, first->budget_bytes);
  EXPECT_EQ(improve(), 0);
}

TEST(SequencePlanTest, CountsTheAccessesThatAreKnown) {
  const policy::TrainingJob job;
  policy::WriteFacts writes;
  policy::RuntimeMachine machine;
  machine.machine.gpu_bytes = 320 << 20;
  const SequencePlan blind(job.Record(1), job.Sizes(), machine, {nullptr, nullptr});
  EXPECT_GT(blind.accesses(), 0u);
  EXPECT_EQ(blind.accesses_known(), 0u);
  const policy::Trace trace = job.Record(1);
  const auto blocks = static_cast<uint32_t>(trace.at(0).blocks.size());
  writes.Guess({{trace.at(0).tag, blocks}, 0b1, 0b10});
  const SequencePlan guessed(trace, job.Sizes(), machine, {nullptr, &writes});
  EXPECT_EQ(guessed.accesses(), blind.accesses());
  EXPECT_GE(guessed.accesses_known(), 2u);
  EXPECT_LT(guessed.accesses_known(), guessed.accesses());
}

// ---- The iteration that was followed for the longest.

// A job that hands blocks out and frees them in its iterations.
class FollowedIterationsTest : public ::testing::Test {
 protected:
  // One iteration: `length` launches with tags from `first` on. A block of its own is handed out before its
  // second launch and freed after it.
  void RunIteration(uint64_t first, uint32_t length) {
    for (uint32_t i = 0; i < length; ++i) {
      if (i == 1) trace_.AddAllocate(100 + first, 1 << 20);
      trace_.AddLaunch(first + i, std::vector<policy::TraceBlock>{first + i});
      if (i == 1) trace_.AddFree(100 + first);
    }
  }
  policy::Trace trace_;
  FollowedIterations followed_;
};

TEST_F(FollowedIterationsTest, NothingWithoutAnIteration) {
  RunIteration(1, 4);
  followed_.Record(trace_, 0);
  EXPECT_EQ(followed_.Most(), nullptr);
}

TEST_F(FollowedIterationsTest, KeepsOneIterationWithItsEvents) {
  for (int i = 0; i < 5; ++i) {
    RunIteration(1, 4);
    followed_.Record(trace_, i < 1 ? 0 : 4);
  }
  const FollowedIterations::Iteration* const iteration = followed_.Most();
  ASSERT_NE(iteration, nullptr);
  EXPECT_EQ(iteration->launches, 4u);
  EXPECT_EQ(iteration->followed, 16u);
  ASSERT_EQ(iteration->trace.end() - iteration->trace.begin(), 4u);
  const policy::LaunchIndex begin = iteration->trace.begin();
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(iteration->trace.at(begin + i).tag, 1 + i);
    EXPECT_EQ(iteration->trace.at(begin + i).blocks[0], 1 + i);
  }
  ASSERT_EQ(iteration->trace.events().size(), 2u);
  EXPECT_EQ(iteration->trace.events()[0].before, begin + 1);
  EXPECT_EQ(iteration->trace.events()[0].bytes, uint64_t{1} << 20);
  EXPECT_FALSE(iteration->trace.events()[1].allocated());
  EXPECT_EQ(iteration->trace.events()[1].before, begin + 2);
}

// The last mark counts where it lies in the iteration that is kept.
TEST_F(FollowedIterationsTest, KnowsWhereAMarkedIterationBegins) {
  for (int i = 0; i < 3; ++i) RunIteration(1, 4);
  followed_.Record(trace_, 4, trace_.end() - 3);
  ASSERT_TRUE(followed_.Most()->first.has_value());
  EXPECT_EQ(*followed_.Most()->first, followed_.Most()->trace.begin() + 1);

  FollowedIterations unmarked;
  unmarked.Record(trace_, 4);
  EXPECT_FALSE(unmarked.Most()->first.has_value());
  FollowedIterations marked_long_ago;
  marked_long_ago.Record(trace_, 4, trace_.end() - 9);
  EXPECT_FALSE(marked_long_ago.Most()->first.has_value());
}

TEST_F(FollowedIterationsTest, AMarkOfTheIterationBeforeOrBehindTheLastLaunchServes) {
  for (int i = 0; i < 3; ++i) RunIteration(1, 4);
  FollowedIterations behind;
  behind.Record(trace_, 4, trace_.end());
  ASSERT_TRUE(behind.Most()->first.has_value());
  EXPECT_EQ(*behind.Most()->first, behind.Most()->trace.begin());
  FollowedIterations before;
  before.Record(trace_, 4, trace_.end() - 5);
  ASSERT_TRUE(before.Most()->first.has_value());
  EXPECT_EQ(*before.Most()->first, before.Most()->trace.begin() + 3);
}

TEST_F(FollowedIterationsTest, TheLongestFollowedWinsAlsoWhenItComesBack) {
  const auto run = [this](uint64_t first, uint32_t length, int times) {
    for (int i = 0; i < times; ++i) {
      RunIteration(first, length);
      followed_.Record(trace_, i < 2 ? 0 : length);
    }
  };
  run(1, 4, 8);     // 24 launches followed
  run(200, 6, 10);  // 48
  EXPECT_EQ(followed_.Most()->launches, 6u);
  run(1, 4, 12);  // 40 more
  EXPECT_EQ(followed_.Most()->launches, 4u);
  EXPECT_EQ(followed_.Most()->followed, 64u);
}

TEST_F(FollowedIterationsTest, APassageFromOneIterationToAnotherIsNotKept) {
  for (int i = 0; i < 3; ++i) RunIteration(1, 4);
  RunIteration(50, 4);
  followed_.Record(trace_, 4);  // as if the iteration were known already
  EXPECT_EQ(followed_.Most(), nullptr);
  RunIteration(50, 4);
  followed_.Record(trace_, 4);
  ASSERT_NE(followed_.Most(), nullptr);
  EXPECT_EQ(followed_.Most()->trace.at(followed_.Most()->trace.begin()).tag, 50u);
}

TEST_F(FollowedIterationsTest, KeepsFewLengths) {
  for (uint32_t length = 2; length < 30; ++length) {
    for (int i = 0; i < 3; ++i) RunIteration(length * 100, length);
    followed_.Record(trace_, length);
  }
  RunIteration(7, 3);
  ASSERT_NE(followed_.Most(), nullptr);
  EXPECT_GT(followed_.Most()->launches, 20u);
}

// ---- When a plan is out of date.

class OutOfDateTest : public FollowedIterationsTest {
 protected:
  OutOfDateTest() {
    RunIteration(1, 4);
    for (uint64_t block = 1; block <= 4; ++block) sizes_[block] = 1 << 20;
    machine_.machine.gpu_bytes = 8 << 20;
    machine_.machine.host_bytes = 8 << 20;
    machine_.machine.pcie_in = machine_.machine.pcie_out = 10e9;
    machine_.machine.pcie_both = {8e9, 6e9};
  }
  bool OutOfDate(const policy::RuntimeMachine& now) const {
    const SequencePlan plan(trace_, sizes_, machine_, {});
    return plan.OutOfDate(trace_, sizes_, now, {});
  }
  policy::BlockSizes sizes_;
  policy::RuntimeMachine machine_;
};

TEST_F(OutOfDateTest, AsLongAsTheLinkIsTheSameItIsNot) {
  EXPECT_FALSE(OutOfDate(machine_));
  policy::RuntimeMachine now = machine_;
  now.machine.pcie_both = {8.5e9, 5.5e9};
  EXPECT_FALSE(OutOfDate(now));
}

// What a direction keeps of its rate beside the other, not the rate itself: both may rise together.
TEST_F(OutOfDateTest, AnotherLossBesideTheOtherDirectionIsAnotherLink) {
  for (const policy::LinkRates& both :
       {policy::LinkRates{6.5e9, 6e9}, {8e9, 8e9}, {9.5e9, 6e9}, {8e9, 4.5e9}}) {
    policy::RuntimeMachine now = machine_;
    now.machine.pcie_both = both;
    EXPECT_TRUE(OutOfDate(now)) << both.in << ", " << both.out;
  }
  policy::RuntimeMachine unmeasured = machine_;
  unmeasured.machine.pcie_both = {};
  EXPECT_TRUE(OutOfDate(unmeasured)) << "directions that are taken to be independent";
}

}  // namespace
}  // namespace spillway::integration
