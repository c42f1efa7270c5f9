#include "integration/report/observation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

TEST(ObservationTest, WithoutARepeatNothingIsReported) {
  const ObservedIteration iteration = ObserveIteration(nullptr, {}, uint64_t{1} << 30);
  EXPECT_EQ(iteration.launches, 0u);
  EXPECT_THAT(ObservationLines(0, iteration), ::testing::ElementsAre(HasSubstr("no iteration repeated")));
}

TEST(ObservationTest, SaysWhatEachBudgetMovesAndWhichIsTooSmall) {
  ObservedIteration iteration;
  iteration.launches = 7;
  iteration.peak_bytes = uint64_t{4} << 30;
  iteration.external_bytes = 16 << 20;
  iteration.largest_set_bytes = uint64_t{2} << 30;
  ObservedBudget half;
  half.percent = 50;
  half.budget_bytes = uint64_t{2} << 30;
  ObservedBudget set_by_user;
  set_by_user.budget_bytes = uint64_t{3} << 30;
  set_by_user.traffic.possible = true;
  set_by_user.traffic.least_fetched_bytes = 100 << 20;
  set_by_user.traffic.whole_block_fetched_bytes = 200 << 20;
  iteration.budgets = {half, set_by_user};
  const std::vector<std::string> lines = ObservationLines(3, iteration);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], HasSubstr("GPU 3: an iteration is 7 launches, the peak 4.00 GiB"));
  EXPECT_THAT(lines[1], HasSubstr("50 % = 2.00 GiB: too little, the largest launch needs 2.00 GiB"));
  EXPECT_THAT(lines[2], HasSubstr("SPILLWAY_GPU_MEMORY = 3.00 GiB: at least 100.00 MiB back"));
}

}  // namespace
}  // namespace spillway::integration
