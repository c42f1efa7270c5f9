#include "integration/report/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/integration/report/metrics_helpers.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

// Both ways: file systems without unnamed files have the second alone.
class AtomicFileTest : public ReportFileTest, public ::testing::WithParamInterface<Naming> {
 protected:
  AtomicFileTest() : umask_(::umask(022)) {}
  ~AtomicFileTest() override { ::umask(umask_); }
  absl::Status Write(const std::string& text, Readers readers = Readers::kEveryone) {
    return WriteFileAtomically(path_, text, readers, GetParam());
  }
  mode_t Mode() const {
    struct stat info = {};
    EXPECT_EQ(::stat(path_.c_str(), &info), 0);
    return info.st_mode & 0777;
  }
  int64_t Files() const { return std::distance(std::filesystem::directory_iterator(folder_), {}); }

  const mode_t umask_;
  const std::string path_ = folder_ + "/metrics.json";
};

INSTANTIATE_TEST_SUITE_P(Namings, AtomicFileTest,
                         ::testing::Values(Naming::kUnnamedIfPossible, Naming::kNamed));

TEST_P(AtomicFileTest, IsReplacedAsAWhole) {
  ASSERT_TRUE(Write("one").ok());
  ASSERT_TRUE(Write("two, longer").ok());
  EXPECT_EQ(Text(path_), "two, longer");
  EXPECT_EQ(Files(), 1);
}

TEST_P(AtomicFileTest, AFolderThatIsNotThereIsAnError) {
  const absl::Status status =
      WriteFileAtomically(folder_ + "/none/metrics.json", "x", Readers::kEveryone, GetParam());
  EXPECT_THAT(std::string(status.message()), HasSubstr("/none/metrics.json: No such file"));
}

TEST_P(AtomicFileTest, WhatIsTheOwnersAloneIsSoWhateverItReplaces) {
  ASSERT_TRUE(Write("one").ok());
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
  ASSERT_TRUE(Write("two", Readers::kOwnerAlone).ok());
  EXPECT_EQ(Mode(), 0600);
}

// In a folder of many users: the file of another name that a link leads to stays as it is.
TEST_P(AtomicFileTest, ALinkThatWaitsForTheFileBesideLeadsNowhere) {
  std::ofstream(folder_ + "/victim") << "mine";
  for (const std::string& name : {absl::StrCat(path_, ".", ::getpid(), ".tmp"), path_ + ".tmp"})
    std::filesystem::create_symlink(folder_ + "/victim", name);
  ASSERT_TRUE(Write("text").ok());
  EXPECT_EQ(Text(folder_ + "/victim"), "mine");
  EXPECT_EQ(Text(path_), "text");
}

TEST_P(AtomicFileTest, WhatHasTheCommandLineIsForItsOwner) {
  ASSERT_TRUE(Write("text", Readers::kOwner).ok());
  EXPECT_EQ(Mode(), 0600);
}

TEST_P(AtomicFileTest, TheRestIsForEveryone) {
  ASSERT_TRUE(Write("text").ok());
  EXPECT_EQ(Mode(), 0644);
}

TEST_P(AtomicFileTest, AFileThatIsThereKeepsItsPermissions) {
  std::ofstream(path_) << "before";
  ASSERT_EQ(::chmod(path_.c_str(), 0640), 0);
  ASSERT_TRUE(Write("text", Readers::kOwner).ok());
  EXPECT_EQ(Mode(), 0640);
}

// By the limit on a file's size.
TEST_P(AtomicFileTest, AFullDiskLeavesTheFileBeforeAndNothingBesideIt) {
  ASSERT_TRUE(Write("before").ok());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit few{4096, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &few);
  const absl::Status status = Write(std::string(100'000, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(Text(path_), "before");
  EXPECT_EQ(Files(), 1);
}

TEST_P(AtomicFileTest, ARelativePathIsInTheWorkingDirectory) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const absl::Status status = WriteFileAtomically("metrics.json", "text", Readers::kEveryone, GetParam());
  std::filesystem::current_path(before);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Text(path_), "text");
}

TEST_P(AtomicFileTest, ALookAtTheFolderLeavesNothing) {
  EXPECT_TRUE(CheckFolderOf(path_).ok());
  EXPECT_EQ(Files(), 0);
  EXPECT_FALSE(CheckFolderOf(folder_ + "/none/x").ok());
}

}  // namespace
}  // namespace spillway::integration
