#include "integration/report/time_series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;

std::vector<uint64_t> Of(const TimeSeries& series, size_t figure) {
  std::vector<uint64_t> values;
  for (size_t i = 0; i < series.size(); ++i) values.push_back(series.at(figure, i));
  return values;
}

void Add(TimeSeries* series, double seconds, uint64_t first, uint64_t second = 0) {
  series->Add(seconds, std::array{first, second});
}

TEST(TimeSeriesTest, MaximaAreKeptUntilTheNextAdd) {
  TimeSeries series(2, Merge::kMaximum, 0.5, 8);
  EXPECT_EQ(series.size(), 0u);
  Add(&series, 0.1, 5, 1);
  Add(&series, 0.4, 3, 2);
  Add(&series, 2.2, 7, 9);
  EXPECT_THAT(Of(series, 0), ElementsAre(5, 5, 5, 5, 7));
  EXPECT_THAT(Of(series, 1), ElementsAre(2, 2, 2, 2, 9));
  EXPECT_EQ(series.every_seconds(), 0.5);
}

TEST(TimeSeriesTest, SumsOfOneIntervalStayInIt) {
  TimeSeries series(2, Merge::kSum, 0.5, 8);
  Add(&series, 2.1, 5);  // nobody knows when they moved
  Add(&series, 2.4, 3);
  EXPECT_THAT(Of(series, 0), ElementsAre(0, 0, 0, 0, 8));
}

// What a late look finds has moved since the look before, not all at once.
TEST(TimeSeriesTest, SumsOfSeveralIntervalsAreSpreadOverThem) {
  TimeSeries series(2, Merge::kSum, 0.5, 8);
  Add(&series, 0.25, 0, 1);
  Add(&series, 2.25, 800, 7);
  EXPECT_THAT(Of(series, 0), ElementsAre(100, 200, 200, 200, 100));
  EXPECT_THAT(Of(series, 1), ElementsAre(1, 2, 2, 2, 1)) << "together all of them";
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  Add(&series, 3.75, most);
  EXPECT_EQ(Of(series, 0)[4] + Of(series, 0)[5] + Of(series, 0)[6] + Of(series, 0)[7], most + 100);
}

TEST(TimeSeriesTest, AFullSeriesMergesNeighbors) {
  TimeSeries sums(2, Merge::kSum, 1, 4);
  TimeSeries maxima(2, Merge::kMaximum, 1, 4);
  for (int i = 0; i < 4; ++i) {
    Add(&sums, i, 1u << i, 1);
    Add(&maxima, i, 1u << i, 1);
  }
  Add(&sums, 4, 100, 1);
  Add(&maxima, 4, 100, 1);
  EXPECT_EQ(sums.every_seconds(), 2);
  EXPECT_THAT(Of(sums, 0), ElementsAre(1 + 2 + 4, 8 + 100, 0)) << "each has moved in the second before";
  EXPECT_THAT(Of(sums, 1), ElementsAre(3, 2, 0));
  EXPECT_THAT(Of(maxima, 0), ElementsAre(2, 8, 100));
}

// However long a run is, and however late a look comes.
TEST(TimeSeriesTest, NeverHasMoreThanItsIntervalsAndLosesNoSum) {
  TimeSeries series(2, Merge::kSum, 0.05, 16);
  uint64_t sum = 0;
  double seconds = 0;
  for (int i = 0; i < 500; ++i) {
    seconds += (i % 37 == 0) ? 40 : 0.07;
    Add(&series, seconds, static_cast<uint64_t>(i));
    sum += static_cast<uint64_t>(i);
    ASSERT_LE(series.size(), 16u);
  }
  uint64_t found = 0;
  for (const uint64_t value : Of(series, 0)) found += value;
  EXPECT_EQ(found, sum);
  EXPECT_GE(series.every_seconds() * 16, seconds);
  EXPECT_LT(series.every_seconds() * 8, seconds);
}

TEST(TimeSeriesTest, AnOddNumberOfIntervalsIsMergedWhole) {
  TimeSeries series(2, Merge::kSum, 1, 4);
  Add(&series, 0, 1);
  Add(&series, 2, 4);
  Add(&series, 9, 50);  // twice too late: 4 intervals of 4 s
  EXPECT_EQ(series.every_seconds(), 4);
  EXPECT_THAT(Of(series, 0), ElementsAre(5 + 14, 28, 8)) << "50 from 2 s to 9 s";
}

}  // namespace
}  // namespace spillway::integration
