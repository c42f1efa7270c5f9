#include "integration/cli/report/report_bins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ReportBinsTest, MergesNeighborsByTheMostOrBySum) {
  const Column values = {1, 5, 2, 2, 9};
  const Series most = MergedByMost(values, 0.5, 3);
  EXPECT_THAT(most.values, ElementsAre(5, 2, 9));
  EXPECT_EQ(most.every_s, 1.0);
  EXPECT_THAT(MergedBySum(values, 0.5, 3).values, ElementsAre(6, 4, 9));
  EXPECT_THAT(MergedBySum(values, 0.5, 5).values, ElementsAre(1, 5, 2, 2, 9));
  EXPECT_THAT(MergedBySum({}, 0.5, 5).values, IsEmpty());
}

TEST(ReportBinsTest, MergingBySumLosesNothing) {
  Column values(4096, 1.5);
  double sum = 0;
  const Series merged = MergedBySum(values, 0.05, 400);
  for (double value : merged.values) sum += value;
  EXPECT_LE(merged.values.size(), 400u);
  EXPECT_DOUBLE_EQ(sum, 4096 * 1.5);
}

TEST(ReportBinsTest, BusyPartsFollowIntervalsOverBins) {
  // From 0 to 4 in four bins: [0.5, 1.5) and, unwanted, [3, 4).
  const Column busy = BusyParts({0.5, 3}, {1, 1}, {true, false}, 0, 4, 4);
  EXPECT_THAT(busy, ElementsAre(0.5, 0.5, 0, 0));
}

TEST(ReportBinsTest, BusyPartsAreCutAtTheWindowAndAtOne) {
  EXPECT_THAT(BusyParts({-1, 0, 9}, {2, 9, 1}, {true, true, true}, 0, 2, 2), ElementsAre(1, 1));
  EXPECT_THAT(BusyParts({1.5}, {100}, {true}, 0, 2, 2), ElementsAre(0, DoubleNear(0.5, 1e-12)));
  EXPECT_THAT(BusyParts({5}, {1}, {true}, 0, 2, 2), ElementsAre(0, 0));
  EXPECT_THAT(BusyParts({5}, {1}, {true}, 2, 2, 2), ElementsAre(0, 0));  // no window
}

TEST(ReportBinsTest, SizeClassesHaveQuantilesOfTheRates) {
  ReportMoves moves;
  moves.kinds = {"a", "b"};
  for (int i = 1; i <= 11; ++i) {  // 1024 bytes at 1024 / i bytes a second
    moves.bytes.push_back(1024);
    moves.seconds.push_back(i);
    moves.kind.push_back(1);
  }
  moves.bytes.insert(moves.bytes.end(), {2047, 0, 64});
  moves.seconds.insert(moves.seconds.end(), {1, 1, 0});
  moves.kind.insert(moves.kind.end(), {0, 0, 0});
  const std::vector<MoveSizeClass> classes = MoveSizeClasses(moves);
  ASSERT_EQ(classes.size(), 2u);  // a move without bytes and one without time are left out
  EXPECT_EQ(classes[0].kind, 0u);
  EXPECT_EQ(classes[0].least_bytes, 1024);
  EXPECT_EQ(classes[1].moves, 11);
  EXPECT_EQ(classes[1].bytes, 11 * 1024);
  EXPECT_THAT(classes[1].median, DoubleEq(1024.0 / 6));
  EXPECT_THAT(classes[1].slow, DoubleEq(1024.0 / 10));
  EXPECT_THAT(classes[1].fast, DoubleEq(1024.0 / 2));
}

TEST(ReportBinsTest, TheIterationToShowLiesWithinTheMoves) {
  const ReportIterations iterations{{0, 10, 20, 30}, {10, 10, 10, 10}};
  ReportMoves moves;
  EXPECT_EQ(IterationToShow(iterations, moves, 40), std::nullopt);
  moves.start_s = {5, 35};
  EXPECT_EQ(IterationToShow(iterations, moves, 40), 3u);
  EXPECT_EQ(IterationToShow(iterations, moves, 39), 2u);  // the last one had not ended
  moves.start_s = {25};
  EXPECT_EQ(IterationToShow(iterations, moves, 39), std::nullopt);
}

TEST(ReportBinsTest, MedianOfNoneIsZero) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
}

}  // namespace
}  // namespace spillway::integration
