#include "integration/cli/report/run_files.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

ReportData Process(const char* host, double rank, double pid, double started, double seconds) {
  ReportData data;
  data.job.command = {"python", "train.py"};
  data.job.host = host;
  data.job.rank = rank;
  data.job.pid = pid;
  data.job.device_index = 0;
  data.job.started_unix = started;
  data.job.seconds = seconds;
  return data;
}

TEST(RunFilesTest, RanksOfOneNodeAndOfSeveralAreOneJob) {
  const ReportData first = Process("a", 0, 10, 1000, 60);
  EXPECT_TRUE(AreOfOneJob(first, Process("a", 1, 11, 1003, 55)));
  EXPECT_TRUE(AreOfOneJob(first, Process("b", 0, 10, 1001, 58))) << "the same rank of another node";
}

TEST(RunFilesTest, DevicesOfOneProcessAreOneJob) {
  ReportData second = Process("a", 0, 10, 1000, 60);
  EXPECT_FALSE(AreOfOneJob(Process("a", 0, 10, 1000, 60), second)) << "the same device twice";
  second.job.device_index = 1;
  EXPECT_TRUE(AreOfOneJob(Process("a", 0, 10, 1000, 60), second));
}

TEST(RunFilesTest, RunsOneAfterTheOtherAreTwo) {
  EXPECT_FALSE(AreOfOneJob(Process("a", 0, 10, 1000, 60), Process("a", 0, 99, 2000, 60)));
  EXPECT_FALSE(AreOfOneJob(Process("a", 0, 10, 1000, 60), Process("a", 1, 99, 2000, 60)));
  EXPECT_TRUE(AreOfOneJob(Process("a", 0, 10, 1000, 60), Process("a", 1, 11, 1063, 9)))
      << "the first block of a rank may be late by seconds";
}

TEST(RunFilesTest, AnotherCommandOrTheSameRankOfANodeIsAnotherJob) {
  ReportData other = Process("a", 1, 11, 1000, 60);
  other.job.command.push_back("--lr");
  EXPECT_FALSE(AreOfOneJob(Process("a", 0, 10, 1000, 60), other));
  EXPECT_FALSE(AreOfOneJob(Process("a", 0, 10, 1000, 60), Process("a", 0, 11, 1001, 60)));
}

TEST(RunFilesTest, WhatIsNotKnownFits) {
  EXPECT_TRUE(AreOfOneJob(ReportData(), ReportData()));
  ReportData timeless = Process("a", 1, 11, 0, 0);
  timeless.job.started_unix.reset();
  EXPECT_TRUE(AreOfOneJob(Process("a", 0, 10, 1000, 60), timeless));
}

}  // namespace
}  // namespace spillway::integration
