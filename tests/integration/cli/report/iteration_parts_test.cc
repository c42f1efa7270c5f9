#include "integration/cli/report/iteration_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

// 100 s, iterations of 2 s of which 1.2 are kernels; the GPU lost 10 s.
ReportFacts Facts() {
  ReportFacts facts;
  facts.seconds = 100;
  facts.iteration_s = 2;
  facts.ideal_s = 1.2;
  return facts;
}

TEST(IterationPartsTest, LostTimeIsTheRunsInProportion) {
  ReportData data;
  data.metrics.lost_seconds = {{"chunks", 4}, {"arrival", 6}};
  const IterationParts parts = PartsOf(data, Facts());
  EXPECT_DOUBLE_EQ(*parts.LostSeconds(), 0.2);
  EXPECT_EQ(parts.lost_s[1].first, CauseText("arrival"));
  EXPECT_DOUBLE_EQ(parts.lost_s[1].second, 0.12);
  EXPECT_DOUBLE_EQ(*parts.pauses_s, 0.6);
}

TEST(IterationPartsTest, TheProcesssOwnCountWins) {
  ReportData data;
  data.metrics.lost_seconds = {{"chunks", 50}};
  data.metrics.per_iteration.lost_seconds = {{"chunks", 0.5}};
  const IterationParts parts = PartsOf(data, Facts());
  EXPECT_DOUBLE_EQ(*parts.LostSeconds(), 0.5);
  EXPECT_DOUBLE_EQ(*parts.pauses_s, 0.3);
}

TEST(IterationPartsTest, WhatIsNotKnownIsNoZero) {
  EXPECT_FALSE(PartsOf(ReportData(), Facts()).LostSeconds());
  EXPECT_FALSE(PartsOf(ReportData(), Facts()).pauses_s);
  EXPECT_FALSE(PartsOf(ReportData(), ReportFacts()).whole_s);
}

TEST(IterationPartsTest, BarsAddUpToTheIteration) {
  ReportData data;
  data.metrics.lost_seconds = {{"chunks", 10}};
  const IterationParts known = PartsOf(data, Facts()), unknown = PartsOf(ReportData(), Facts());
  const auto chart = IterationPartsChart({"a", "b", "c"}, {known, unknown, IterationParts()}, "");
  ASSERT_TRUE(chart);
  double end_a = 0, end_b = 0;
  for (const auto& row : chart->spec["data"]["values"]) {
    EXPECT_NE(row["name"], "c");
    (row["name"] == "a" ? end_a : end_b) = row["to"];
  }
  EXPECT_DOUBLE_EQ(end_a, 2);
  EXPECT_DOUBLE_EQ(end_b, 2);
  EXPECT_EQ(chart->legend.back().name, "not known which");
  EXPECT_FALSE(IterationPartsChart({"c"}, {IterationParts()}, ""));
}

}  // namespace
}  // namespace spillway::integration
