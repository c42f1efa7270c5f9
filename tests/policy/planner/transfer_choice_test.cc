#include "policy/planner/transfer_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

using ::testing::ElementsAre;

ChoiceOptions Options(Bytes budget, Bytes piece) {
  ChoiceOptions options;
  options.budget_bytes = budget;
  options.piece_bytes = piece;
  options.write_rate = 1e9;
  return options;
}

// 50 of 200 MB are too many at kernels 5 and 6. Their write takes 50 ms: kernels 1, 2 and half of 3, so that
// the memory is there from kernel 4 on.
TEST(ChooseTransfersTest, TakesWhatIsTooMuchAndTheEarliestWriteTime) {
  const Workload workload = MountainWorkload(20 * kMilli);
  const auto evictions =
      ChooseTransfers(workload, FindLifetimes(workload), TimesOf(workload), Options(150 * kMega, 10 * kMega));
  ASSERT_EQ(evictions.size(), 1u);
  EXPECT_EQ(evictions[0].interval, 0u);
  EXPECT_EQ(evictions[0].first_piece, 0u);
  EXPECT_EQ(evictions[0].last_piece, 5u);
  EXPECT_EQ(evictions[0].from, 4u);
}

// The same with tensor 2, which kernel 0 makes and kernel `overwritten` makes anew: of 300 MB 50 are too
// many. Tensor 0 is used last, at kernel 11; tensor 2 needs no way back.
Workload WithOverwritten(uint32_t overwritten) {
  Workload workload = MountainWorkload(20 * kMilli);
  workload.tensors.push_back({100 * kMega, false});
  workload.kernels[0].outputs = {0, 2};
  workload.kernels[1].inputs = {2};
  workload.kernels[overwritten].outputs.push_back(2);
  return workload;
}

TEST(ChooseTransfersTest, WhatIsOverwrittenUnreadGoesFirstIfAskedFor) {
  // Overwritten by kernel 10 it is away for as long as the memory is needed, by kernel 6 it is not.
  for (const auto& [overwritten, one_way_first, leaves] :
       {std::tuple(10u, false, 0u), std::tuple(10u, true, 2u), std::tuple(6u, true, 0u)}) {
    const Workload workload = WithOverwritten(overwritten);
    const Lifetimes lifetimes = FindLifetimes(workload);
    ChoiceOptions options = Options(250 * kMega, 10 * kMega);
    options.one_way_first = one_way_first;
    const auto evictions = ChooseTransfers(workload, lifetimes, TimesOf(workload), options);
    ASSERT_EQ(evictions.size(), 1u) << overwritten;
    EXPECT_EQ(lifetimes.intervals[evictions[0].interval].tensor, leaves) << overwritten;
    EXPECT_EQ(evictions[0].last_piece, 5u);
  }
}

TEST(ChooseTransfersTest, WholeTensorsAreOnePiece) {
  const Workload workload = MountainWorkload(30 * kMilli);
  const auto evictions =
      ChooseTransfers(workload, FindLifetimes(workload), TimesOf(workload), Options(150 * kMega, 0));
  ASSERT_EQ(evictions.size(), 1u);
  EXPECT_EQ(evictions[0].last_piece, 1u);
  EXPECT_EQ(evictions[0].from, 5u);  // 100 ms: kernels 1, 2, 3 and a third of 4
}

// 40 ms before kernel 5 write 40 MB; the last piece goes although its write is late, and counts from where it
// is due.
TEST(ChooseTransfersTest, WhatCannotBeWrittenInTimeGoesAnyway) {
  const Workload workload = MountainWorkload(10 * kMilli);
  const auto evictions =
      ChooseTransfers(workload, FindLifetimes(workload), TimesOf(workload), Options(150 * kMega, 10 * kMega));
  ASSERT_EQ(evictions.size(), 2u);
  EXPECT_EQ(evictions[0].last_piece, 4u);
  EXPECT_EQ(evictions[1].first_piece, 4u);
  EXPECT_EQ(evictions[1].last_piece, 5u);
  EXPECT_EQ(evictions[1].from, 5u);
}

// Weights that are never written; kernel 1 needs 150 MB. After it there are 175 ms until kernel 9 reads
// tensors 0 and 1: time to bring back one of them (while 5 to 8 run), and, before kernel 5, tensor 2.
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
  for (const PlannedEviction& eviction :
       ChooseTransfers(workload, FindLifetimes(workload), TimesOf(workload), options))
    chosen.push_back(eviction.interval);
  return chosen;
}

TEST(ChooseTransfersTest, WhatHasTimeToReturnGoesFirstWhenAsked) {
  ChoiceOptions options = Options(250 * kMega, 0);
  EXPECT_THAT(ChosenIntervals(CloseReturns(), options), ElementsAre(1, 0));
  options.read_rate = 1e9;
  EXPECT_THAT(ChosenIntervals(CloseReturns(), options), ElementsAre(1, 2));
}

// Kernel 7 needs 100 MB: what tensor 1 leaves, unless its way back, from kernel 5 on, takes them.
TEST(ChooseTransfersTest, MemoryIsCountedAsTakenFromTheStartOfTheWayBackIfAsked) {
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

// A weight of 100 MB: updated by kernel 7, read by 1 and by 5 of eight; 3 and 6 need all the memory. The copy
// written after the update serves both evictions: only one of them takes copy queue time.
TEST(ChooseTransfersTest, ASecondEvictionOfTheSameContentNeedsNoWrite) {
  Workload workload;
  workload.tensors = {{100 * kMega, true}};
  for (int k = 0; k < 8; ++k) workload.kernels.push_back({"k", 60 * kMilli, {}, {}, 0});
  workload.kernels[1].inputs = workload.kernels[5].inputs = {0};
  workload.kernels[7].inputs = workload.kernels[7].outputs = {0};
  workload.kernels[3].workspace_bytes = workload.kernels[6].workspace_bytes = 100 * kMega;
  const Lifetimes lifetimes = FindLifetimes(workload);
  const auto evictions = ChooseTransfers(workload, lifetimes, TimesOf(workload), Options(100 * kMega, 0));
  ASSERT_EQ(evictions.size(), 2u);
  EXPECT_EQ(lifetimes.intervals[evictions[0].interval].after, 1u);
  EXPECT_EQ(evictions[0].from, 2u);  // written during kernels 0 and 1, while 1 still reads it
  EXPECT_EQ(lifetimes.intervals[evictions[1].interval].after, 5u);
  EXPECT_EQ(evictions[1].from, 6u);
}

}  // namespace
}  // namespace spillway::policy
