#include "integration/report/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "tests/integration/report/metrics_helpers.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

using OutputFileTest = ReportFileTest;

TEST_F(OutputFileTest, PathsNameProcessAndRank) {
  EXPECT_EQ(OutputFile::Expand("/a/%r/%p.json", 3), "/a/3/" + std::to_string(::getpid()) + ".json");
  EXPECT_EQ(OutputFile::Expand("/a/%x%r", 0), "/a/%x0");
  EXPECT_EQ(OutputFile::Expand("/a/%p.json", 3), "/a/" + std::to_string(::getpid()) + ".json");
  EXPECT_EQ(OutputFile::OfDevice("/a/run.json", 2, /*first=*/true), "/a/run.json");
  EXPECT_EQ(OutputFile::OfDevice("/a/run.json", 2, /*first=*/false), "/a/run.json.gpu2");
}

// Else nodes that share a file system replace one another's files: ranks and processes have the same numbers
// there.
TEST_F(OutputFileTest, PathsNameTheHost) {
  const std::string host = HostName();
  ASSERT_NE(host, "");
  EXPECT_EQ(OutputFile::Expand("/a/%h/run-%r.json", 3), "/a/" + host + "/run-3.json");
  EXPECT_EQ(OutputFile::Expand("/a/run-%h.json", 3), "/a/run-" + host + ".rank3.json");
  EXPECT_EQ(OutputFile::WithHost("/a/%h-%r-%p.json"), "/a/" + host + "-%r-%p.json");
}

// Else ranks that are given the same path replace one another's files.
TEST_F(OutputFileTest, RanksAfterTheFirstHaveANameOfTheirOwn) {
  EXPECT_EQ(OutputFile::Expand("/a/run.json", 0), "/a/run.json");
  EXPECT_EQ(OutputFile::Expand("/a/run.json", 3), "/a/run.rank3.json");
  EXPECT_EQ(OutputFile::Expand("/a.b/run", 3), "/a.b/run.rank3");
  EXPECT_EQ(OutputFile::Expand("run.prom", 1), "run.rank1.prom");
  EXPECT_EQ(OutputFile::Expand("", 3), "");
  EXPECT_EQ(OutputFile::OfDevice(OutputFile::Expand("run.json", 1), 2, false), "run.rank1.json.gpu2");
}

TEST_F(OutputFileTest, IsReplacedAsAWhole) {
  const std::string path = folder_ + "/out.txt";
  OutputFile file("SPILLWAY_X", path, Readers::kEveryone);
  file.Replace("a long first text");
  file.Replace("short");
  EXPECT_EQ(Text(path), "short");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(OutputFileTest, NothingIsWrittenThatIsNotWanted) {
  OutputFile file("SPILLWAY_X", "", Readers::kEveryone);
  EXPECT_FALSE(file.wanted());
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  ::testing::internal::CaptureStderr();
  file.Replace("text");
  std::filesystem::current_path(before);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(OutputFileTest, WhatCannotBeWrittenIsReportedOnceAndTriedAgain) {
  const std::string folder = folder_ + "/later";
  OutputFile file("SPILLWAY_X", folder + "/out.txt", Readers::kEveryone);
  ::testing::internal::CaptureStderr();
  file.Replace("1");
  file.Replace("2");
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      ::testing::MatchesRegex("spillway: warning cannot write SPILLWAY_X: [^\n]*No such file[^\n]*\n"));
  std::filesystem::create_directory(folder);
  file.Replace("3");
  EXPECT_EQ(Text(folder + "/out.txt"), "3");
}

// A file system that is full in the middle of a file, by the limit on a file's size.
TEST_F(OutputFileTest, AFullDiskLeavesTheFileBeforeAndNothingBesideIt) {
  const std::string path = folder_ + "/out.txt";
  OutputFile file("SPILLWAY_X", path, Readers::kEveryone);
  file.Replace("before");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit few{4096, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &few);
  ::testing::internal::CaptureStderr();
  file.Replace(std::string(100'000, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("cannot write SPILLWAY_X: "));
  EXPECT_EQ(Text(path), "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace spillway::integration
