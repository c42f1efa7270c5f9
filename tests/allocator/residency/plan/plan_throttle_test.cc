// PlanThrottle alone: after which launches an event is due, and how far the host may be ahead of the GPU.

#include "allocator/residency/plan/plan_throttle.h"

#include <gtest/gtest.h>

#include <vector>

#include "policy/model/plan.h"
#include "policy/model/units.h"
#include "tests/allocator/residency/plan/plan_of.h"

namespace spillway::allocator {
namespace {

using policy::PlanOp;
using policy::PlanOpKind;

// With an op, which is never due.
std::shared_ptr<policy::MigrationPlan> PlanWithAnOp(const std::vector<policy::Nanos>& durations,
                                                    policy::LaunchIndex start) {
  auto plan = PlanOf(durations, start);
  PlanOp op;
  op.launch = plan->iteration_launches;
  plan->ops.push_back(op);
  return plan;
}

TEST(PlanThrottleTest, APlanThatMovesNothingHoldsNobody) {
  PlanThrottle throttle;
  throttle.Set(PlanThrottle::MakeTable(*PlanOf({5'000'000, 5'000'000, 5'000'000}, 10)));
  EXPECT_EQ(throttle.MustHaveCompleted(24), policy::kNever);
  EXPECT_FALSE(throttle.EventAfter(24));
}

TEST(PlanThrottleTest, LongLaunchesAreCounted) {
  PlanThrottle throttle;
  EXPECT_EQ(throttle.MustHaveCompleted(100), policy::kNever) << "no plan";
  EXPECT_FALSE(throttle.EventAfter(100));
  throttle.Set(PlanThrottle::MakeTable(*PlanWithAnOp({5'000'000, 5'000'000, 5'000'000}, 10)));
  EXPECT_EQ(throttle.MustHaveCompleted(9), policy::kNever) << "before the plan";
  for (policy::LaunchIndex i = 20; i < 26; ++i) {
    EXPECT_EQ(throttle.MustHaveCompleted(i), i - policy::RunAhead().launches - 1);
    EXPECT_TRUE(throttle.EventAfter(i));
  }
}

TEST(PlanThrottleTest, ShortLaunchesAreTimed) {
  PlanThrottle throttle;
  throttle.Set(
      PlanThrottle::MakeTable(*PlanWithAnOp(std::vector<policy::Nanos>(1000, 100'000), 0)));  // 0.1 ms each
  EXPECT_EQ(throttle.MustHaveCompleted(500), 500 - 20 - 1) << "2 ms";
  EXPECT_EQ(throttle.MustHaveCompleted(5), policy::kNever) << "the job has only begun";
  int events = 0;
  for (policy::LaunchIndex i = 0; i < 1000; ++i) events += throttle.EventAfter(i);
  EXPECT_EQ(events, 200) << "one each half a millisecond";
}

TEST(PlanThrottleTest, EventsFollowTheLaunchesOfDrops) {
  auto plan = PlanOf({}, 0);
  plan->iteration_launches = 4;
  PlanOp drop;
  drop.kind = PlanOpKind::kDrop;
  drop.launch = 2;
  plan->ops.push_back(drop);
  PlanThrottle throttle;
  throttle.Set(PlanThrottle::MakeTable(*plan));
  EXPECT_TRUE(throttle.EventAfter(6));
  EXPECT_FALSE(throttle.EventAfter(5));
  EXPECT_EQ(throttle.MustHaveCompleted(1000), policy::kNever) << "times are not known";
  throttle.Set(nullptr);
  EXPECT_FALSE(throttle.EventAfter(6));
}

}  // namespace
}  // namespace spillway::allocator
