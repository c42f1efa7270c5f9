#include "integration/report/wear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/fakes/variable.h"

namespace spillway::integration {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kHour = 3600;
constexpr uint64_t kTb = 1'000'000'000'000;

TEST(WearReportsTest, NamesTheSettingOnceWhereMuchIsWrittenToADirectoryThatNobodyChose) {
  WearReports wear({nullptr, "/var/tmp"});
  EXPECT_THAT(wear.Update(1, 0), IsEmpty());
  EXPECT_THAT(wear.Update(3 * kHour, 6 * kTb - 1), IsEmpty());
  EXPECT_THAT(wear.Update(3 * kHour + 10, 6 * kTb),
              ElementsAre(AllOf(HasSubstr("this job has written 6.0 TB to /var/tmp within a day"),
                                HasSubstr("600 TBW"), HasSubstr("SPILLWAY_WRITE_BUDGET (such as 2TB/day)"),
                                HasSubstr("SPILLWAY_DIRS"))));
  EXPECT_THAT(wear.Update(4 * kHour, 12 * kTb), IsEmpty()) << "once";
}

TEST(WearReportsTest, MuchIsMuchWithinADay) {
  WearReports slow({nullptr, "/var/tmp"});
  for (int hour = 0; hour < 24 * 30; ++hour)  // 5.3 TB a day
    EXPECT_THAT(slow.Update(hour * kHour, static_cast<uint64_t>(hour) * kTb * 22 / 100), IsEmpty()) << hour;
  // Then faster.
  EXPECT_THAT(slow.Update(24 * 30 * kHour, 24 * 30 * kTb * 22 / 100 + 2 * kTb),
              ElementsAre(HasSubstr("6.0 TB")));
}

TEST(WearReportsTest, SaysNothingOfDirectoriesThatWereChosen) {
  WearReports wear({nullptr, ""});
  EXPECT_THAT(wear.Update(kHour, 100 * kTb), IsEmpty());
}

TEST(WearReportsTest, SaysOnceThatTheBudgetIsSpentAndAgainTheNextTime) {
  int64_t now = 1'700'000'000'000'000'000;
  io::WriteBudget budget(
      {.bytes = kTb, .interval = std::chrono::hours(24), .path = "", .unix_nanos = [&now] { return now; }});
  WearReports wear({&budget, ""});
  EXPECT_THAT(wear.Update(1, 0), IsEmpty());
  budget.CountWritten(kTb);
  EXPECT_THAT(wear.Update(11, kTb),
              ElementsAre(AllOf(HasSubstr("the write budget (SPILLWAY_WRITE_BUDGET) is spent"),
                                HasSubstr("for 91 min at least"), HasSubstr("up to 11.6 MB/s"))));
  EXPECT_THAT(wear.Update(21, kTb), IsEmpty());
  now += 12 * 3600 * int64_t{1'000'000'000};
  EXPECT_THAT(wear.Update(31, kTb), IsEmpty());
  budget.CountWritten(kTb);
  EXPECT_THAT(wear.Update(41, 2 * kTb), ElementsAre(HasSubstr("is spent")));
}

TEST(WearReportsTest, SaysOnceThatTheRecordCannotBeHad) {
  io::WriteBudget budget(
      {.bytes = kTb, .interval = std::chrono::hours(24), .path = "/proc/self/no/such/writes"});
  WearReports wear({&budget, ""});
  EXPECT_THAT(wear.Update(1, 0), ElementsAre(AllOf(HasSubstr("the record of SPILLWAY_WRITE_BUDGET: "),
                                                   HasSubstr("/no/such/writes"))));
  EXPECT_THAT(wear.Update(11, 0), IsEmpty());
}

TEST(WriteRecordPathTest, LiesInTheUsersCache) {
  const tests::Variable home("HOME", "/home/ada");
  {
    const tests::Variable cache("XDG_CACHE_HOME", "/scratch/ada");
    EXPECT_EQ(WriteRecordPath(), "/scratch/ada/spillway/writes");
  }
  const tests::Variable cache("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(WriteRecordPath(), "/home/ada/.cache/spillway/writes");
  const tests::Variable none("HOME", nullptr);
  EXPECT_EQ(WriteRecordPath(), "");
}

}  // namespace
}  // namespace spillway::integration
