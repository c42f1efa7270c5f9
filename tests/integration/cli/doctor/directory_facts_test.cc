// What is found in spill directories, on the disk of the build.

#include "integration/cli/doctor/directory_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "tests/integration/cli/doctor/doctor_helpers.h"

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DirectoryFactsTest : public ::testing::Test {
 protected:
  DirectoryFactsTest() {
    char name[] = "/var/tmp/spillway_disk_XXXXXX";
    path_ = ::mkdtemp(name);
    settings_.disk_reserve = Size{1, 0};
  }
  ~DirectoryFactsTest() override { fs::remove_all(path_); }

  DiskFacts Inspect(const DirectoryFacts& start) {
    return InspectDisks(settings_, {start}, options_).front();
  }
  DirectoryFacts Start() const {
    const fs::space_info space = fs::space(path_);
    return {path_, "", space.available, space.capacity, true};
  }

  std::string path_;
  Settings settings_;
  DiskOptions options_;
};

TEST_F(DirectoryFactsTest, ADirectoryOnADisk) {
  options_.time = std::chrono::milliseconds(200);
  std::vector<std::string> paths;
  options_.progress = [&](const std::string& path, const io::DiskProgress&) { paths.push_back(path); };
  const DiskFacts facts = Inspect(Start());
  EXPECT_EQ(facts.start.problem, "");
  EXPECT_FALSE(facts.file_system.empty());
  EXPECT_EQ(facts.reserve_bytes, 1u);
  EXPECT_EQ(facts.rate_problem, "");
  EXPECT_GT(facts.rates.write.bytes, 0u);
  EXPECT_GT(facts.SpaceBytes(), 0u);
  EXPECT_THAT(paths, ::testing::Each(path_));
  EXPECT_FALSE(paths.empty());
  EXPECT_TRUE(fs::is_empty(path_));
}

TEST_F(DirectoryFactsTest, RatesOnlyWhereTheyAreAskedFor) {
  EXPECT_EQ(Inspect(Start()).rate_problem, "not asked for");
  EXPECT_TRUE(fs::is_empty(path_));
}

TEST_F(DirectoryFactsTest, WhatTheStartRefusesIsNotTried) {
  options_.time = std::chrono::milliseconds(100);
  const DiskFacts facts = Inspect({path_ + "/none", "No such file or directory", 0, 0, true});
  EXPECT_EQ(facts.start.problem, "No such file or directory");
  EXPECT_EQ(facts.rate_problem, "it cannot be used");
  EXPECT_EQ(facts.SpaceBytes(), 0u);
}

TEST_F(DirectoryFactsTest, ThereIsNoMeasuringWithoutSpace) {
  options_.time = std::chrono::milliseconds(100);
  settings_.disk_reserve = Size{1ull << 60, 0};
  EXPECT_THAT(Inspect(Start()).rate_problem, HasSubstr("no space to measure in"));
}

TEST_F(DirectoryFactsTest, TheCapOfAnEntryIsKept) {
  options_.time = std::chrono::seconds(30);
  settings_.dirs = {{{DirectoryEntry{path_, 16 * kMiB}}}};
  const DiskFacts facts = Inspect(Start());
  EXPECT_EQ(facts.cap_bytes, 16 * kMiB);
  EXPECT_EQ(facts.rates.write.bytes, 16 * kMiB) << facts.rate_problem;
  EXPECT_EQ(facts.rates.end, io::WriteEnd::kLimit);
  EXPECT_EQ(facts.SpaceBytes(), 16 * kMiB);
}

TEST_F(DirectoryFactsTest, SpaceIsWhatTheReserveLeaves) {
  DiskFacts facts;
  facts.start = {"/x", "", 20 * kGiB, 100 * kGiB, true};
  facts.reserve_bytes = 10 * kGiB;
  EXPECT_EQ(facts.SpaceBytes(), 10 * kGiB);
  facts.cap_bytes = kGiB;
  EXPECT_EQ(facts.SpaceBytes(), kGiB);
  facts.reserve_bytes = 30 * kGiB;
  EXPECT_EQ(facts.SpaceBytes(), 0u);
}

}  // namespace
}  // namespace spillway::integration
