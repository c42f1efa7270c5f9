// What is read of a file of settings, and each way in which one is wrong.

#include "integration/settings/conf_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

enum Entry : int { kSetting = 0, kLimit = 1 };

class ConfFileTest : public ::testing::Test {
 protected:
  ConfFileTest() {
    char folder[] = "/tmp/spillway_conf_XXXXXX";
    folder_ = ::mkdtemp(folder);
    path_ = folder_ + "/spillway.conf";
  }
  ~ConfFileTest() override {
    CloseConfFile(&file_);
    std::filesystem::remove_all(folder_);
  }

  void Write(const std::string& text, mode_t mode = 0644) {
    std::ofstream(path_, std::ios::binary) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  int Read(ConfFileKind kind) {
    CloseConfFile(&file_);
    return ReadConfFile(path_.c_str(), kind, &file_);
  }
  // "", or what is wrong, without the path before it.
  std::string ProblemOf(const std::string& text, ConfFileKind kind = kConfOfUser) {
    Write(text);
    const int result = Read(kind);
    EXPECT_EQ(result == -1, file_.problem[0] != '\0');
    EXPECT_TRUE(result == 1 || file_.count == 0);
    const std::string problem = file_.problem;
    if (problem.empty()) return problem;
    EXPECT_THAT(problem, StartsWith(path_ + ":"));
    return problem.substr(path_.size() + 1);
  }
  std::string ValueOf(const char* name, int is_limit = kSetting) {
    const ConfFileEntry* const entry = FindConfFileEntry(&file_, name, is_limit);
    return entry == nullptr ? "(none)" : entry->value;
  }

  std::string folder_, path_;
  ConfFile file_ = {};
};

TEST_F(ConfFileTest, TakesKeysAndVariablesAndLeavesOutComments) {
  Write("# all jobs\n\n  host_memory = 20GiB # a note\r\nSPILLWAY_DIRS=/a#1,/b:2TiB\n\tSPILLWAY=observe");
  ASSERT_EQ(Read(kConfOfUser), 1);
  EXPECT_EQ(file_.count, 3u);
  EXPECT_EQ(ValueOf("host_memory"), "20GiB");
  EXPECT_EQ(ValueOf("dirs"), "/a#1,/b:2TiB") << "a path may have a # inside";
  EXPECT_EQ(ValueOf("spillway"), "observe");
  EXPECT_EQ(ValueOf("gpu_memory"), "(none)");
  EXPECT_EQ(std::string(FindConfFileEntry(&file_, "dirs", kSetting)->source), path_ + ":4: dirs");
}

TEST_F(ConfFileTest, LimitsStandApart) {
  Write("host_memory=20GiB\n[limits]\nhost_memory=64GiB\nSPILLWAY_WRITE_BUDGET=2TB/day\n");
  ASSERT_EQ(Read(kConfOfSystem), 1);
  EXPECT_EQ(ValueOf("host_memory"), "20GiB");
  EXPECT_EQ(ValueOf("host_memory", kLimit), "64GiB");
  EXPECT_EQ(ValueOf("write_budget", kLimit), "2TB/day");
  EXPECT_EQ(ValueOf("write_budget"), "(none)");
}

TEST_F(ConfFileTest, WrongLinesAreNamedWithWhatToDo) {
  EXPECT_EQ(ProblemOf("log=info\nhost_memory 20GiB\n"), "2: expected NAME=VALUE, as in host_memory=20GiB");
  EXPECT_THAT(ProblemOf("export SPILLWAY_LOG=info"), HasSubstr("1: expected NAME=VALUE"));
  EXPECT_EQ(ProblemOf("\nhost_memroy=20GiB"),
            "2: host_memroy is not a setting of Spillway; the nearest name is host_memory");
  EXPECT_THAT(ProblemOf("SPILLWAY_GPUMEMORY=1GiB"), HasSubstr("the nearest name is gpu_memory"));
  EXPECT_THAT(ProblemOf("SPILLWAY_gpu_memory=1GiB"), HasSubstr("is not a setting"));
  EXPECT_THAT(ProblemOf("spillway_log=info"), HasSubstr("is not a setting"));
  EXPECT_EQ(ProblemOf("log="), "1: log has no value; remove the line to use the default");
  EXPECT_EQ(ProblemOf("log= # info"), "1: log has no value; remove the line to use the default");
  EXPECT_EQ(ProblemOf("metrics=\"/tmp/x\""), "1: values have no quotation marks; remove them");
  EXPECT_EQ(ProblemOf("log=info\nSPILLWAY_LOG=warn"), "2: log is set twice; remove one of the lines");
  EXPECT_EQ(ProblemOf("metrics=/a\x01z"), "1: the value of metrics has a control character; remove it");
  EXPECT_EQ(ProblemOf("[limit]"), "1: [limit] is not a section; the only one is [limits]");
}

TEST_F(ConfFileTest, OnlyTheSystemsFileLimitsAndOnlyWhatCanBe) {
  EXPECT_EQ(ProblemOf("[limits]\n"), "1: only /etc/spillway.conf may have [limits]; remove the section");
  EXPECT_THAT(ProblemOf("[limits]\n", kConfNamed), HasSubstr("only /etc/spillway.conf"));
  EXPECT_EQ(ProblemOf("[limits]\nlog=info\n", kConfOfSystem),
            "2: log cannot be limited, only gpu_memory, host_memory and write_budget; remove the line");
}

TEST_F(ConfFileTest, AFileThatIsNotThereIsNone) {
  EXPECT_EQ(Read(kConfOfUser), 0);
  EXPECT_EQ(Read(kConfOfSystem), 0);
  EXPECT_EQ(file_.problem[0], '\0');
  path_ = "/dev/null/spillway.conf";
  EXPECT_EQ(Read(kConfOfUser), 0);
}

TEST_F(ConfFileTest, AFileThatTheUserNamesMustBeThere) {
  EXPECT_EQ(Read(kConfNamed), -1);
  EXPECT_EQ(std::string(file_.problem),
            path_ + ": it cannot be read: No such file or directory; fix or remove it");
}

TEST_F(ConfFileTest, NobodyElseMayWriteToIt) {
  for (const mode_t mode : {0664, 0646}) {
    Write("log=info\n", mode);
    for (const ConfFileKind kind : {kConfOfUser, kConfNamed, kConfOfSystem}) {
      EXPECT_EQ(Read(kind), -1);
      EXPECT_EQ(std::string(file_.problem),
                path_ + ": users other than its owner may write to it; run chmod go-w " + path_);
    }
  }
}

TEST_F(ConfFileTest, ItBelongsToTheUserOrRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  Write("log=info\n");
  ASSERT_EQ(::chown(path_.c_str(), 12345, 0), 0);
  EXPECT_EQ(Read(kConfOfUser), -1);
  EXPECT_THAT(file_.problem, HasSubstr("it belongs to user 12345, who is neither root nor this one"));
  EXPECT_EQ(Read(kConfOfSystem), -1);
  EXPECT_THAT(file_.problem,
              HasSubstr("it belongs to user 12345, who is neither root nor the owner of its folder"));
  // As in a user namespace, where root's files and folders are those of an unknown user.
  ASSERT_EQ(::chown(folder_.c_str(), 12345, 0), 0);
  EXPECT_EQ(Read(kConfOfSystem), 1);
}

TEST_F(ConfFileTest, OnlyAPlainFileOfSomeSizeIsRead) {
  Write(std::string(kMaxConfFileBytes, '#'));
  EXPECT_EQ(Read(kConfOfUser), 1);
  Write(std::string(kMaxConfFileBytes + 1, '#'));
  EXPECT_EQ(Read(kConfOfUser), -1);
  EXPECT_THAT(file_.problem, HasSubstr("more than 64 KiB"));
  EXPECT_THAT(ProblemOf(std::string("log=info\0", 9)), HasSubstr("zero byte"));
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);  // nobody writes to it: must not be waited for
  EXPECT_EQ(Read(kConfOfUser), -1);
  EXPECT_THAT(file_.problem, HasSubstr("not a regular file"));
}

// Whatever bytes are there: an answer, and either entries or words.
TEST_F(ConfFileTest, BytesOfAnyKindAreAnswered) {
  const std::string pieces[] = {"log=info", "[limits]",        "=", "#", "\n", " ", "dirs", "SPILLWAY_", "\r",
                                "\xff",     "host_memory=1GiB"};
  std::mt19937 random(1);
  int read = 0;
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (auto n = random() % 12; n > 0; --n) text += pieces[random() % std::size(pieces)];
    read += ProblemOf(text, kConfOfSystem).empty() ? 1 : 0;
  }
  EXPECT_GT(read, 50);
  EXPECT_LT(read, 450);
}

TEST(UserConfPathTest, FollowsTheVariables) {
  char path[64];
  ConfFileKind kind = kConfOfSystem;
  const auto found = [&](const char* named, const char* config, const char* home) {
    return UserConfPath(named, config, home, path, sizeof(path), &kind) != 0 ? std::string(path) : "(none)";
  };
  EXPECT_EQ(found(nullptr, nullptr, "/home/a"), "/home/a/.config/spillway.conf");
  EXPECT_EQ(kind, kConfOfUser);
  EXPECT_EQ(found("", "/c", "/home/a"), "/c/spillway.conf");
  EXPECT_EQ(found(nullptr, "relative", "/home/a"), "/home/a/.config/spillway.conf");
  EXPECT_EQ(found("job.conf", "/c", "/home/a"), "job.conf");
  EXPECT_EQ(kind, kConfNamed);
  EXPECT_EQ(found("none", "/c", "/home/a"), "(none)");
  EXPECT_EQ(found(nullptr, nullptr, nullptr), "(none)");
  EXPECT_EQ(found(nullptr, nullptr, "relative"), "(none)");
  EXPECT_EQ(found(nullptr, nullptr, ("/" + std::string(80, 'h')).c_str()), "(none)")
      << "longer than a path may be";
}

}  // namespace
}  // namespace spillway::integration
