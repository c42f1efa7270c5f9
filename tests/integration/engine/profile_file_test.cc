#include "integration/engine/profile_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/fakes/variable.h"
#include "tests/integration/report/metrics_helpers.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

JobFacts FactsOf(uint64_t tag, int forms = 1) {
  JobFacts facts;
  facts.key = {"2.11.0+cu130", "13.0", "a device"};
  for (int i = 0; i < forms; ++i) facts.writes.push_back({{tag, static_cast<uint32_t>(i + 1)}, 1, 0});
  return facts;
}

class ProfileFileTest : public ReportFileTest {
 protected:
  absl::Status Write(uint64_t tag) { return WriteProfile(path_, ProfileText(FactsOf(tag))); }
  mode_t Mode() const {
    struct stat info = {};
    EXPECT_EQ(::stat(path_.c_str(), &info), 0);
    return info.st_mode & 0777;
  }
  const std::string path_ = folder_ + "/profile";
};

TEST_F(ProfileFileTest, ComesBack) {
  EXPECT_TRUE(absl::IsNotFound(ReadProfile(path_).status()));
  ASSERT_TRUE(Write(7).ok());
  const auto read = ReadProfile(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->writes, FactsOf(7).writes);
  EXPECT_EQ(read->key, FactsOf(7).key);
}

TEST_F(ProfileFileTest, IsTheUsersAloneWhateverItWasBefore) {
  std::ofstream(path_) << "what was here";
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
  EXPECT_THAT(ReadProfile(path_).status().message(), HasSubstr("others may write to it"));
  ASSERT_TRUE(Write(7).ok());
  EXPECT_EQ(Mode(), 0600u);
  EXPECT_TRUE(ReadProfile(path_).ok());
}

TEST_F(ProfileFileTest, WhatIsDamagedIsNamed) {
  ASSERT_TRUE(Write(7).ok());
  std::filesystem::resize_file(path_, 40);
  const absl::Status status = ReadProfile(path_).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(status.message(), HasSubstr(path_ + ": its checksum is wrong"));
  std::ofstream(path_, std::ios::app) << std::string(kMaxProfileBytes, 'x');
  EXPECT_THAT(ReadProfile(path_).status().message(), HasSubstr("larger than 64 KiB"));
}

// A link may lead to a file of another user, or of another purpose; a pipe would be waited for.
TEST_F(ProfileFileTest, OnlyAPlainFileIsReadOrReplaced) {
  std::ofstream(folder_ + "/other") << "mine";
  std::filesystem::create_symlink(folder_ + "/other", path_);
  EXPECT_FALSE(ReadProfile(path_).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Write(7)));
  EXPECT_EQ(Text(folder_ + "/other"), "mine");
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadProfile(path_).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Write(7)));
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadProfile(path_).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Write(7)));
}

TEST_F(ProfileFileTest, AnotherUsersFileIsNeitherReadNorReplaced) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  ASSERT_TRUE(Write(7).ok());
  ASSERT_EQ(::chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadProfile(path_).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Write(8)));
  ASSERT_EQ(::chown(path_.c_str(), 0, 0), 0);
  EXPECT_EQ(ReadProfile(path_)->writes, FactsOf(7).writes);
}

TEST_F(ProfileFileTest, AFolderThatCannotBeWrittenIsAnErrorThatNamesThePath) {
  const absl::Status status = WriteProfile("/proc/self/no/profile", ProfileText(FactsOf(7)));
  EXPECT_THAT(status.message(), HasSubstr("/proc/self/no/profile: "));
}

// Ranks, and jobs: each reader sees one writer's file, whole.
TEST_F(ProfileFileTest, OfManyWritersOneWholeFileWins) {
  constexpr int kWriters = 4, kTimes = 50, kForms = 200;
  ASSERT_TRUE(WriteProfile(path_, ProfileText(FactsOf(0, kForms))).ok());
  std::atomic<int> writing{kWriters};
  std::vector<std::thread> writers;
  for (uint64_t tag = 1; tag <= kWriters; ++tag) {
    writers.emplace_back([&, tag] {
      for (int i = 0; i < kTimes; ++i)
        EXPECT_TRUE(WriteProfile(path_, ProfileText(FactsOf(tag, kForms))).ok());
      writing.fetch_sub(1);
    });
  }
  while (writing.load() > 0) {
    const auto read = ReadProfile(path_);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->writes, FactsOf(read->writes.front().form.tag, kForms).writes) << "a mix";
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "a file is left behind";
}

TEST_F(ProfileFileTest, TheDefaultLiesInTheUsersCacheAndIsMadeThere) {
  const tests::Variable home("HOME", folder_.c_str());
  const tests::Variable cache("XDG_CACHE_HOME", nullptr);
  const std::string path = DefaultProfilePath({"2.11.0+cu130", "13.0", "NVIDIA H200 (a/b)"});
  EXPECT_EQ(path, folder_ + "/.cache/spillway/profile-2.11-NVIDIA-H200-a-b");
  ASSERT_TRUE(WriteProfile(path, ProfileText(FactsOf(7))).ok());
  EXPECT_TRUE(ReadProfile(path).ok());
  struct stat info = {};
  ASSERT_EQ(::stat((folder_ + "/.cache/spillway").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_FALSE(WriteProfile(folder_ + "/none/profile", "x").ok()) << "no other folder is made";
}

TEST_F(ProfileFileTest, WithoutAHomeThereIsNone) {
  const tests::Variable home("HOME", nullptr);
  const tests::Variable cache("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(DefaultProfilePath({"none", "13.0", "a device"}), "");
}

}  // namespace
}  // namespace spillway::integration
