#include "integration/engine/observation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

TEST(ObservationTest, WithoutARepeatNothingIsSaid) {
  const ObservedStep step = ObserveStep(nullptr, {}, uint64_t{1} << 30);
  EXPECT_EQ(step.launches, 0u);
  EXPECT_THAT(ObservationLines(0, step), ::testing::ElementsAre(HasSubstr("no step repeated")));
}

TEST(ObservationTest, SaysWhatEachBudgetMovesAndWhichIsTooSmall) {
  ObservedStep step;
  step.launches = 7;
  step.peak_bytes = uint64_t{4} << 30;
  step.others_bytes = 16 << 20;
  step.largest_set_bytes = uint64_t{2} << 30;
  ObservedBudget half;
  half.percent = 50;
  half.budget_bytes = uint64_t{2} << 30;
  ObservedBudget set_by_user;
  set_by_user.budget_bytes = uint64_t{3} << 30;
  set_by_user.traffic.possible = true;
  set_by_user.traffic.least_fetched_bytes = 100 << 20;
  set_by_user.traffic.whole_block_fetched_bytes = 200 << 20;
  step.budgets = {half, set_by_user};
  const std::vector<std::string> lines = ObservationLines(3, step);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], HasSubstr("GPU 3: a step is 7 launches, the peak 4.00 GiB"));
  EXPECT_THAT(lines[1], HasSubstr("50 % = 2.00 GiB: too little, the largest launch needs 2.00 GiB"));
  EXPECT_THAT(lines[2], HasSubstr("SPILLWAY_GPU_MEMORY = 3.00 GiB: at least 100.00 MiB back"));
}

}  // namespace
}  // namespace spillway::integration
