#include "integration/cli/report/job_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RankFile Rank(const char* host, double rank, double iteration_s, double lost_s) {
  RankFile file;
  file.path = "x.json";
  ReportData& data = file.data;
  data.job.host = host;
  data.job.rank = rank;
  data.job.pid = 100 + rank;
  data.job.local_size = 2;
  data.job.seconds = 100;
  data.metrics.iteration_s = iteration_s;
  data.metrics.lost_seconds = {{"chunks", lost_s}};
  data.metrics.spilled_bytes = 1000 * (rank + 1);
  data.metrics.disk_written_bytes = 500;
  return file;
}

TEST(JobRanksTest, TheSlowestHasTheLongestIteration) {
  const ReportedRun run{"x", {Rank("a", 0, 1.0, 9), Rank("a", 1, 1.2, 1)}};
  const JobRanks ranks = RanksOf(run, {});
  EXPECT_EQ(ranks.slowest, 1u);
  EXPECT_EQ(ranks.by, SlowestBy::kIteration);
  EXPECT_EQ(ranks.fastest_s, 1.0);
  EXPECT_EQ(ranks.slowest_s, 1.2);
}

TEST(JobRanksTest, OfEquallyFastOnesTheOneThatLosesMostHoldsTheOthersUp) {
  const ReportedRun run{"x", {Rank("a", 0, 1.0, 3), Rank("a", 1, 0.99, 7), Rank("b", 0, 1.01, 0)}};
  const JobRanks ranks = RanksOf(run, {});
  EXPECT_EQ(ranks.slowest, 1u);
  EXPECT_EQ(ranks.by, SlowestBy::kLostTime);
}

TEST(JobRanksTest, WithoutTimesNoneIsTheSlowest) {
  ReportedRun run{"x", {Rank("a", 0, 1.0, 3), Rank("a", 1, 1.0, 3)}};
  for (RankFile& rank : run.ranks) {
    rank.data.metrics.iteration_s.reset();
    rank.data.metrics.lost_seconds.clear();
  }
  EXPECT_EQ(RanksOf(run, {}).by, SlowestBy::kNothing);
  EXPECT_FALSE(RanksOf(run, {}).slowest_s);
}

TEST(JobRanksTest, NamesSayAsMuchAsTellsThemApart) {
  ReportedRun run{"x", {Rank("a", 0, 1, 0), Rank("a", 1, 1, 0)}};
  EXPECT_THAT(RankNames(run), ElementsAre("rank 0", "rank 1"));
  run.ranks.push_back(Rank("b", 0, 1, 0));
  EXPECT_THAT(RankNames(run), ElementsAre("a, rank 0", "a, rank 1", "b, rank 0"));
  run.ranks.pop_back();
  run.ranks[1].data.job.rank = 0;
  run.ranks[0].data.job.device_index = 0;
  run.ranks[1].data.job.device_index = 1;
  EXPECT_THAT(RankNames(run), ElementsAre("rank 0, GPU 0", "rank 0, GPU 1"));
  run.ranks[1].data.job.device_index = 0;
  EXPECT_THAT(RankNames(run), ElementsAre("rank 0, GPU 0, process 100", "rank 0, GPU 0, process 101"));
}

TEST(JobRanksTest, RanksWithoutAFileAreNamed) {
  ReportedRun run{"x", {Rank("a", 0, 1, 0), Rank("b", 0, 1, 0), Rank("b", 1, 1, 0)}};
  EXPECT_THAT(RanksOf(run, {}).absent, ElementsAre("a: rank 1 of 2"));
  run.ranks.erase(run.ranks.begin());
  EXPECT_THAT(RanksOf(run, {}).absent, IsEmpty());
}

TEST(JobRanksTest, WhatDiffersIsSaidOfEachRank) {
  ReportedRun run{"x", {Rank("a", 0, 1, 0), Rank("a", 1, 1, 0)}};
  EXPECT_THAT(RanksOf(run, {}).differences, IsEmpty());
  run.ranks[1].data.settings = {{"policy", "lru", "SPILLWAY_POLICY"}};
  run.ranks[1].data.job.device = "H100";
  const auto differences = RanksOf(run, {}).differences;
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].what, "policy");
  EXPECT_THAT(differences[0].values, ElementsAre("", "lru"));
  EXPECT_EQ(differences[1].what, "device");
}

TEST(JobRanksTest, SumsNeedEveryRankAndCountTheDrivesOfAProcessOnce) {
  ReportedRun run{"x", {Rank("a", 0, 1, 0), Rank("a", 1, 1, 0)}};
  EXPECT_EQ(RanksOf(run, {}).spilled_bytes, 3000);
  EXPECT_EQ(RanksOf(run, {}).disk_written_bytes, 1000);
  run.ranks[1].data.job.pid = run.ranks[0].data.job.pid;  // two devices of a process
  EXPECT_EQ(RanksOf(run, {}).disk_written_bytes, 500);
  run.ranks[1].data.metrics.spilled_bytes.reset();
  EXPECT_FALSE(RanksOf(run, {}).spilled_bytes);
}

}  // namespace
}  // namespace spillway::integration
