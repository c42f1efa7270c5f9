#include "io/os/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace spillway::os {
namespace {

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { SetLogLevel(LogLevel::kWarn); }

  // What is written to standard error meanwhile.
  template <typename Work>
  static std::string Written(Work work) {
    ::testing::internal::CaptureStderr();
    work();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, WritesWhatTheLevelAllows) {
  EXPECT_EQ(Written([] { Log(LogLevel::kError, "one"); }), "spillway: error one\n");
  EXPECT_EQ(Written([] { Log(LogLevel::kInfo, "two"); }), "");
  SetLogLevel(LogLevel::kDebug);
  EXPECT_EQ(Written([] { Log(LogLevel::kDebug, "three"); }), "spillway: debug three\n");
  SetLogLevel(LogLevel::kOff);
  EXPECT_EQ(Written([] { Log(LogLevel::kError, "four"); }), "");
}

TEST_F(LogTest, AReportIsWrittenUnlessAllIsOff) {
  SetLogLevel(LogLevel::kError);
  EXPECT_EQ(Written([] { ReportLine("summary"); }), "spillway: summary\n");
  SetLogLevel(LogLevel::kOff);
  EXPECT_EQ(Written([] { ReportLine("summary"); }), "");
  EXPECT_EQ(Written([] { ReportFatal("the end"); }), "spillway: the end\n");
}

TEST_F(LogTest, LinesNameTheirPlace) {
  SetLogPlace("rank 1, pid 7");
  EXPECT_EQ(Written([] { ReportLine("summary"); }), "spillway: rank 1, pid 7: summary\n");
  EXPECT_EQ(Written([] { Log(LogLevel::kError, "one"); }), "spillway: rank 1, pid 7: error one\n");
  SetLogPlace("");
  EXPECT_EQ(Written([] { ReportLine("summary"); }), "spillway: summary\n");
}

TEST_F(LogTest, ManyLinesAreBoundedButErrorsAreNot) {
  SetLogLevel(LogLevel::kInfo);
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  const std::string infos = Written([] {
    for (int i = 0; i < 1000; ++i) Log(LogLevel::kInfo, "line");
  });
  EXPECT_LT(lines(infos), 1000);  // 20 a second, however many seconds it takes
  EXPECT_GE(lines(infos), 1);
  const std::string errors = Written([] {
    for (int i = 0; i < 100; ++i) Log(LogLevel::kError, "line");
  });
  EXPECT_EQ(lines(errors), 100);
}

}  // namespace
}  // namespace spillway::os
