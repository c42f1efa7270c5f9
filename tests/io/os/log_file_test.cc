#include "io/os/log_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "io/os/log.h"

namespace spillway::os {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr int64_t kTime = 1'795'880'150'123'456'789;  // 2026-11-28, 15:35:50 and something

TEST(MarkedTextTest, HasTimeLevelProcessAndRank) {
  EXPECT_EQ(MarkedText({kTime, "warning", 4711, 3, "a line"}, LogFormat::kText),
            "2026-11-28T15:35:50.123Z warning 4711 rank 3: a line\n");
  EXPECT_EQ(MarkedText({kTime, "notice", 4711, -1, "a line"}, LogFormat::kText),
            "2026-11-28T15:35:50.123Z notice 4711: a line\n");
  EXPECT_EQ(MarkedText({kTime, "warning", 4711, 0, "a line"}, LogFormat::kJson),
            R"({"time":"2026-11-28T15:35:50.123Z","level":"warning","pid":4711,"rank":0,"text":"a line"})"
            "\n");
  EXPECT_EQ(MarkedText({0, "error", 1, -1, ""}, LogFormat::kJson),
            R"({"time":"1970-01-01T00:00:00.000Z","level":"error","pid":1,"text":""})"
            "\n");
}

std::string JsonOf(const std::string& text) {
  const std::string line = MarkedText({0, "info", 1, -1, text}, LogFormat::kJson);
  const size_t start = line.find(R"("text":)") + 7;
  return line.substr(start, line.size() - start - 2);
}

TEST(MarkedTextTest, JsonEscapesWhatItMust) {
  EXPECT_EQ(JsonOf("\"/a\\b\"\n\t\x01"), R"("\"/a\\b\"\u000a\u0009\u0001")");
  EXPECT_EQ(JsonOf("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"), "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
}

TEST(MarkedTextTest, WhatIsNoUtf8IsReplaced) {
  const std::string gone = "\xef\xbf\xbd";
  EXPECT_EQ(JsonOf("a\xff"), "\"a" + gone + "\"");
  EXPECT_EQ(JsonOf("\xc3"), "\"" + gone + "\"") << "cut off";
  EXPECT_EQ(JsonOf("\xc0\xaf"), "\"" + gone + gone + "\"") << "longer than need be";
  EXPECT_EQ(JsonOf("\xed\xa0\x80"), "\"" + gone + gone + gone + "\"") << "half of a pair";
  EXPECT_EQ(JsonOf("\xf4\x90\x80\x80"), "\"" + gone + gone + gone + gone + "\"") << "beyond Unicode";
}

class LogFileTest : public ::testing::Test {
 protected:
  LogFileTest() {
    char folder[] = "/tmp/spillway_log_XXXXXX";
    folder_ = ::mkdtemp(folder);
    path_ = folder_ + "/job.log";
  }
  ~LogFileTest() override {
    CloseLogFile();
    SetLogFormat(LogFormat::kText, -1);
    std::filesystem::remove_all(folder_);
  }
  std::string Content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  template <typename Work>
  static std::string OnTerminal(Work work) {
    ::testing::internal::CaptureStderr();
    work();
    return ::testing::internal::GetCapturedStderr();
  }

  std::string folder_, path_;
};

TEST_F(LogFileTest, LinesGoToBothAndTheTerminalsStayAsTheyAre) {
  ASSERT_TRUE(OpenLogFile(path_).ok());
  SetLogFormat(LogFormat::kText, 2);
  EXPECT_EQ(OnTerminal([] {
              Log(LogLevel::kError, "one");
              ReportLine("two");
              ReportFatal("three");
              Log(LogLevel::kDebug, "not wanted");
            }),
            "spillway: error one\nspillway: two\nspillway: three\n");
  const std::string head = "[0-9T:.-]+Z ", place = " " + std::to_string(::getpid()) + " rank 2: ";
  EXPECT_THAT(Content(), MatchesRegex(head + "error" + place + "one\n" + head + "notice" + place + "two\n" +
                                      head + "fatal" + place + "three\n"));
}

TEST_F(LogFileTest, ItIsTheOwnersAndIsAppendedTo) {
  ASSERT_TRUE(OpenLogFile(path_).ok());
  struct stat info = {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  OnTerminal([] { ReportLine("one"); });
  ASSERT_TRUE(OpenLogFile(path_).ok());
  OnTerminal([] { ReportLine("two"); });
  EXPECT_THAT(Content(), MatchesRegex(".* one\n.* two\n"));
}

TEST_F(LogFileTest, JsonIsOnTheTerminalAsWell) {
  ASSERT_TRUE(OpenLogFile(path_).ok());
  SetLogFormat(LogFormat::kJson, -1);
  const std::string terminal = OnTerminal([] { ReportLine("one"); });
  EXPECT_THAT(terminal, HasSubstr(R"("level":"notice")"));
  EXPECT_EQ(Content(), terminal);
  EXPECT_THAT(LastLines().back(), "spillway: one") << "what spillway top shows stays plain";
}

TEST_F(LogFileTest, WhatCannotBeOpenedIsAnErrorAndChangesNothing) {
  ASSERT_TRUE(OpenLogFile(path_).ok());
  EXPECT_THAT(std::string(OpenLogFile(folder_ + "/none/job.log").message()), HasSubstr("/none/job.log"));
  EXPECT_FALSE(OpenLogFile(folder_).ok()) << "a directory";
  std::filesystem::create_symlink(path_, folder_ + "/link");
  EXPECT_FALSE(OpenLogFile(folder_ + "/link").ok()) << "a link could lead anywhere";
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  EXPECT_FALSE(OpenLogFile(folder_ + "/pipe").ok()) << "nobody reads it";
  const int reader = ::open((folder_ + "/pipe").c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_FALSE(OpenLogFile(folder_ + "/pipe").ok()) << "who reads it may leave";
  ::close(reader);
  if (::geteuid() != 0) return;
  std::ofstream(folder_ + "/theirs.log") << "";
  ASSERT_EQ(::chown((folder_ + "/theirs.log").c_str(), 12345, 12345), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(OpenLogFile(folder_ + "/theirs.log")));
  OnTerminal([] { ReportLine("one"); });
  EXPECT_THAT(Content(), HasSubstr(": one\n"));
}

TEST_F(LogFileTest, AFileThatFailsIsSaidOnce) {
  ASSERT_TRUE(OpenLogFile("/dev/full").ok());
  const std::string terminal = OnTerminal([] {
    ReportLine("one");
    ReportLine("two");
  });
  EXPECT_THAT(terminal,
              MatchesRegex("spillway: one\nspillway: warning cannot write SPILLWAY_LOG_FILE: [^\n]*No "
                           "space left[^\n]*\nspillway: two\n"));
}

}  // namespace
}  // namespace spillway::os
