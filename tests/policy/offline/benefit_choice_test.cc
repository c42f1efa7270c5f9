#include "policy/offline/benefit_choice.h"

#include <gtest/gtest.h>

#include "policy/model/lifetimes.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

ChoiceOptions OptionsOf(Bytes budget, Bytes piece) {
  ChoiceOptions options;
  options.budget_bytes = budget;
  options.piece_bytes = piece;
  return options;
}

TEST(ChooseByBenefitTest, TakesWholeIntervalsUntilNothingIsTooMuch) {
  const Workload workload = MountainWorkload();
  const Lifetimes lifetimes = FindLifetimes(workload);
  const auto evictions =
      ChooseByBenefit(workload, lifetimes, TimesOf(workload), OptionsOf(150 * kMega, 10 * kMega));
  ASSERT_EQ(evictions.size(), 1u);
  EXPECT_EQ(evictions[0].last_piece, 10u);
  EXPECT_EQ(evictions[0].from, 1u);
  EXPECT_TRUE(ChooseByBenefit(workload, lifetimes, TimesOf(workload), OptionsOf(200 * kMega, 0)).empty());
}

}  // namespace
}  // namespace spillway::policy
