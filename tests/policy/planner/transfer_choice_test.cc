#include "policy/planner/transfer_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "policy/bound/quick_bound.h"
#include "policy/planner/tier_choice.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

using ::testing::ElementsAre;

std::vector<Nanos> TimesOf(const Workload& workload) {
  std::vector<Nanos> times;
  for (const WorkloadKernel& kernel : workload.kernels) times.push_back(kernel.duration);
  return times;
}

ChoiceOptions Options(Bytes budget, Bytes piece) {
  ChoiceOptions options;
  options.budget_bytes = budget;
  options.piece_bytes = piece;
  options.write_rate = 1e9;
  return options;
}

// 50 of 200 MB are too many at kernels 5 and 6. Their write takes 50 ms: kernels 1, 2 and half of 3, so that the room
// is there from kernel 4 on.
TEST(ChooseTransfersTest, TakesWhatIsTooMuchAndTheEarliestWriteTime) {
  const Workload workload = MountainWorkload(20 * kMilli);
  const auto absences =
      ChooseTransfers(workload, FindLifetimes(workload), TimesOf(workload), Options(150 * kMega, 10 * kMega));
  ASSERT_EQ(absences.size(), 1u);
  EXPECT_EQ(absences[0].interval, 0u);
  EXPECT_EQ(absences[0].first_piece, 0u);
  EXPECT_EQ(absences[0].last_piece, 5u);
  EXPECT_EQ(absences[0].from, 4u);
}

// The same with tensor 2, which kernel 0 makes and kernel `overwritten` makes anew: of 300 MB 50 are too many. Tensor 0 is
// used last, at kernel 11; tensor 2 needs no way back.
Workload WithOverwritten(uint32_t overwritten) {
  Workload workload = MountainWorkload(20 * kMilli);
  workload.tensors.push_back({100 * kMega, false});
  workload.kernels[0].outputs = {0, 2};
  workload.kernels[1].inputs = {2};
  workload.kernels[overwritten].outputs.push_back(2);
  return workload;
}

TEST(ChooseTransfersTest, WhatIsOverwrittenUnreadGoesFirstIfAskedFor) {
  // Overwritten by kernel 10 it is away for as long as the room is needed, by kernel 6 it is not.
  for (const auto& [overwritten, one_way_first, leaves] :
       {std::tuple(10u, false, 0u), std::tuple(10u, true, 2u), std::tuple(6u, true, 0u)}) {
    const Workload workload = WithOverwritten(overwritten);
    const Lifetimes lifetimes = FindLifetimes(workload);
    ChoiceOptions options = Options(250 * kMega, 10 * kMega);
    options.one_way_first = one_way_first;
    const auto absences = ChooseTransfers(workload, lifetimes, TimesOf(workload), options);
    ASSERT_EQ(absences.size(), 1u) << overwritten;
    EXPECT_EQ(lifetimes.intervals[absences[0].interval].tensor, leaves) << overwritten;
    EXPECT_EQ(absences[0].last_piece, 5u);
  }
}

TEST(ChooseTransfersTest, WholeTensorsAreOnePiece) {
  const Workload workload = MountainWorkload(30 * kMilli);
  const auto absences =
      ChooseTransfers(workload, FindLifetimes(workload), TimesOf(workload), Options(150 * kMega, 0));
  ASSERT_EQ(absences.size(), 1u);
  EXPECT_EQ(absences[0].last_piece, 1u);
  EXPECT_EQ(absences[0].from, 5u);  // 100 ms: kernels 1, 2, 3 and a third of 4
}

// 40 ms before kernel 5 write 40 MB; the last piece goes although its write is late, and counts from where it is due.
TEST(ChooseTransfersTest, WhatCannotBeWrittenInTimeGoesAnyway) {
  const Workload workload = MountainWorkload(10 * kMilli);
  const auto absences =
      ChooseTransfers(workload, FindLifetimes(workload), TimesOf(workload), Options(150 * kMega, 10 * kMega));
  ASSERT_EQ(absences.size(), 2u);
  EXPECT_EQ(absences[0].last_piece, 4u);
  EXPECT_EQ(absences[1].first_piece, 4u);
  EXPECT_EQ(absences[1].last_piece, 5u);
  EXPECT_EQ(absences[1].from, 5u);
}

// Weights that are never written; kernel 1 needs 150 MB. After it there are 175 ms until kernel 9 reads tensors 0 and 1:
// time to bring back one of them (while 5 to 8 run), and, before kernel 5, tensor 2.
Workload CloseReturns() {
  Workload workload;
  workload.tensors = {{100 * kMega, true}, {100 * kMega, true}, {50 * kMega, true}};
  for (int k = 0; k < 10; ++k) workload.kernels.push_back({"k", 25 * kMilli, {}, {}, 0});
  workload.kernels[0].inputs = {0, 1, 2};
  workload.kernels[1].workspace_bytes = 150 * kMega;
  workload.kernels[5].inputs = {2};
  workload.kernels[9].inputs = {0, 1};
  return workload;
}

std::vector<uint32_t> ChosenIntervals(const Workload& workload, const ChoiceOptions& options) {
  std::vector<uint32_t> chosen;
  for (const PlannedAbsence& absence :
       ChooseTransfers(workload, FindLifetimes(workload), TimesOf(workload), options))
    chosen.push_back(absence.interval);
  return chosen;
}

TEST(ChooseTransfersTest, WhatHasTimeToReturnGoesFirstWhenAsked) {
  ChoiceOptions options = Options(250 * kMega, 0);
  EXPECT_THAT(ChosenIntervals(CloseReturns(), options), ElementsAre(1, 0));
  options.read_rate = 1e9;
  EXPECT_THAT(ChosenIntervals(CloseReturns(), options), ElementsAre(1, 2));
}

// Kernel 7 needs 100 MB: what tensor 1 leaves, unless its way back, from kernel 5 on, takes them.
TEST(ChooseTransfersTest, RoomIsGivenBackWhenTheWayBackBeginsIfAsked) {
  Workload workload = CloseReturns();
  workload.kernels[7].workspace_bytes = 100 * kMega;
  ChoiceOptions options = Options(250 * kMega, 0);
  options.read_rate = 1e9;
  EXPECT_THAT(ChosenIntervals(workload, options), ElementsAre(1, 2));
  options.early_returns = true;
  EXPECT_THAT(ChosenIntervals(workload, options), ElementsAre(1, 2, 3, 0));
}

TEST(ChooseTransfersTest, NothingLeavesWhereAllFits) {
  const Workload workload = MountainWorkload();
  EXPECT_TRUE(
      ChooseTransfers(workload, FindLifetimes(workload), TimesOf(workload), Options(200 * kMega, 0)).empty());
}

// A weight of 100 MB: updated by kernel 7, read by 1 and by 5 of eight; 3 and 6 need all the room. The copy written
// after the update serves both absences: only one of them takes lane time.
TEST(ChooseTransfersTest, ASecondAbsenceOfTheSameContentNeedsNoWrite) {
  Workload workload;
  workload.tensors = {{100 * kMega, true}};
  for (int k = 0; k < 8; ++k) workload.kernels.push_back({"k", 60 * kMilli, {}, {}, 0});
  workload.kernels[1].inputs = workload.kernels[5].inputs = {0};
  workload.kernels[7].inputs = workload.kernels[7].outputs = {0};
  workload.kernels[3].workspace_bytes = workload.kernels[6].workspace_bytes = 100 * kMega;
  const Lifetimes lifetimes = FindLifetimes(workload);
  const auto absences = ChooseTransfers(workload, lifetimes, TimesOf(workload), Options(100 * kMega, 0));
  ASSERT_EQ(absences.size(), 2u);
  EXPECT_EQ(lifetimes.intervals[absences[0].interval].after, 1u);
  EXPECT_EQ(absences[0].from, 2u);  // written during kernels 0 and 1, while 1 still reads it
  EXPECT_EQ(lifetimes.intervals[absences[1].interval].after, 5u);
  EXPECT_EQ(absences[1].from, 6u);
}

TEST(ChooseByBenefitTest, TakesWholeIntervalsUntilNothingIsTooMuch) {
  const Workload workload = MountainWorkload();
  const Lifetimes lifetimes = FindLifetimes(workload);
  const auto absences =
      ChooseByBenefit(workload, lifetimes, TimesOf(workload), Options(150 * kMega, 10 * kMega));
  ASSERT_EQ(absences.size(), 1u);
  EXPECT_EQ(absences[0].last_piece, 10u);
  EXPECT_EQ(absences[0].from, 1u);
  EXPECT_TRUE(ChooseByBenefit(workload, lifetimes, TimesOf(workload), Options(200 * kMega, 0)).empty());
}

// Two absences of 50 MB, and room for one on a host of 60 MB.
TEST(ChooseTiersTest, OnlyWhatTheHostCannotHoldGoesToTheSsd) {
  const Workload workload = MountainWorkload(20 * kMilli);
  const Lifetimes lifetimes = FindLifetimes(workload);
  Machine machine = PlainMachine(50 * kMega, 60 * kMega);
  machine.piece_bytes = 10 * kMega;
  for (TierOrder order : {TierOrder::kNearestFirst, TierOrder::kSpread, TierOrder::kFarthestFirst}) {
    TransferPlan plan;
    plan.kernel_times = TimesOf(workload);
    plan.absences = {{0, 0, 5, 4, PlanTier::kHost}, {0, 5, 10, 4, PlanTier::kHost}};
    ChooseTiers(workload, lifetimes, machine, order, &plan);
    EXPECT_NE(plan.absences[0].tier, plan.absences[1].tier);
    machine.host_bytes = 0;
    ChooseTiers(workload, lifetimes, machine, order, &plan);
    EXPECT_EQ(plan.absences[0].tier, PlanTier::kDisk);
    EXPECT_EQ(plan.absences[1].tier, PlanTier::kDisk);
    machine.host_bytes = 200 * kMega;
    ChooseTiers(workload, lifetimes, machine, order, &plan);
    EXPECT_EQ(plan.absences[0].tier, PlanTier::kHost);
    EXPECT_EQ(plan.absences[1].tier, PlanTier::kHost);
    machine.host_bytes = 60 * kMega;
  }
}

// Half of the link is the SSD's: 50 MB take 100 ms. Both are due at kernel 11; the first must begin before the second.
TEST(HostReadLeadsTest, QueuesBackwardsFromTheNextUse) {
  const Workload workload = MountainWorkload(20 * kMilli);
  TransferPlan plan;
  plan.kernel_times = TimesOf(workload);
  plan.absences = {{0, 0, 5, 4, PlanTier::kHost}, {0, 5, 10, 4, PlanTier::kHost}};
  Machine machine = PlainMachine(50 * kMega, 200 * kMega);
  machine.piece_bytes = 10 * kMega;
  EXPECT_THAT(HostReadLeads(workload, FindLifetimes(workload), machine, plan),
              ElementsAre(200 * kMilli, 100 * kMilli));
  plan.absences[0].tier = PlanTier::kDisk;
  EXPECT_THAT(HostReadLeads(workload, FindLifetimes(workload), machine, plan), ElementsAre(0, 100 * kMilli));
}

// 50 MB have to leave in the 25 ms before kernel 5 and to return in the 25 after kernel 6, one of which is in between
// in either case: 50 + 5 + 50 ms.
TEST(QuickBoundTest, WorkedByHand) {
  const Workload workload = MountainWorkload(5 * kMilli);
  const Lifetimes lifetimes = FindLifetimes(workload);
  QuickBound bound = FindQuickBound(workload, lifetimes, PlainMachine(150 * kMega, 1000 * kMega));
  EXPECT_EQ(bound.compute, 60 * kMilli);
  EXPECT_EQ(bound.load, 50 * kMilli);
  EXPECT_EQ(bound.phase, 105 * kMilli);
  EXPECT_EQ(bound.ssd_phase, 60 * kMilli);
  EXPECT_EQ(bound.Best(), 105 * kMilli);
  Machine slow_ssd = PlainMachine(150 * kMega, 20 * kMega);
  slow_ssd.ssd_read = slow_ssd.ssd_write = 0.25e9;  // 30 MB in 120 ms
  bound = FindQuickBound(workload, lifetimes, slow_ssd);
  EXPECT_EQ(bound.ssd_phase, 245 * kMilli);
  EXPECT_EQ(bound.ssd_shared, 0);
  slow_ssd.ssd_shared = true;  // out and in again, one after the other
  EXPECT_EQ(FindQuickBound(workload, lifetimes, slow_ssd).ssd_shared, 240 * kMilli);
  EXPECT_EQ(FindQuickBound(workload, lifetimes, PlainMachine(200 * kMega, 0)).Best(), 60 * kMilli);
}

}  // namespace
}  // namespace spillway::policy
