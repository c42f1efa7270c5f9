// WaitList: what is reported of waits, when, and how they end.

#include "io/os/wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spillway::os {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class HandClock : public Clock {
 public:
  int64_t NowNanos() const override { return now; }
  int64_t now = 1000 * kSecond;
};

class WaitTest : public testing::Test {
 protected:
  WaitList Make(int64_t limit_seconds = 0) {
    return WaitList(
        &clock_, [this](const std::string& line) { lines_.push_back(line); },
        std::chrono::seconds(limit_seconds));
  }
  void After(WaitList* list, int64_t seconds) {
    clock_.now += seconds * kSecond;
    list->Scan();
  }

  HandClock clock_;
  std::vector<std::string> lines_;
};

TEST_F(WaitTest, SaysALongWaitAfterTenAndSixtySecondsThenEveryFiveMinutes) {
  WaitList list = Make();
  const Wait wait(&list, WaitKind::kDrive, "/nvme0");
  After(&list, 9);
  EXPECT_TRUE(lines_.empty());
  After(&list, 1);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], HasSubstr("waits 10 s for a drive: /nvme0"));
  After(&list, 49);
  EXPECT_EQ(lines_.size(), 1u);
  After(&list, 1);
  EXPECT_EQ(lines_.size(), 2u);
  After(&list, 299);
  EXPECT_EQ(lines_.size(), 2u);
  After(&list, 1);
  EXPECT_EQ(lines_.size(), 3u);
  After(&list, 301);
  EXPECT_EQ(lines_.size(), 4u);
}

TEST_F(WaitTest, SaysOnceWhatWasDueSeveralTimes) {
  WaitList list = Make();
  const Wait wait(&list, WaitKind::kChunks, "launch of gemm");
  After(&list, 1000);
  EXPECT_EQ(lines_.size(), 1u);
  After(&list, 1);
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(WaitTest, SaysNothingOfAWaitThatIsOver) {
  WaitList list = Make();
  { const Wait wait(&list, WaitKind::kChunks, ""); }
  After(&list, 1000);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(WaitTest, CountsWhatIsOverAndWhatIsUnderWay) {
  WaitList list = Make();
  {
    const Wait over(&list, WaitKind::kArrival, "");
    clock_.now += 3 * kSecond;
  }
  const Wait wait(&list, WaitKind::kArrival, "block 7");
  clock_.now += 2 * kSecond;
  const auto metrics = list.Metrics();
  const WaitList::Totals& arrivals = metrics[static_cast<size_t>(WaitKind::kArrival)];
  EXPECT_EQ(arrivals.ended, 1u);
  EXPECT_EQ(arrivals.nanos, static_cast<uint64_t>(3 * kSecond));
  EXPECT_EQ(arrivals.now, 1u);
  EXPECT_EQ(arrivals.longest_now_nanos, static_cast<uint64_t>(2 * kSecond));
  EXPECT_THAT(list.Describe(), HasSubstr("waits 2 s for bytes to come back: block 7"));
}

TEST_F(WaitTest, OldestFirstAlsoAfterOneInTheMiddleHasEnded) {
  WaitList list = Make();
  const Wait first(&list, WaitKind::kChunks, "1");
  clock_.now += kSecond;
  auto second = std::make_unique<Wait>(&list, WaitKind::kChunks, "2");
  clock_.now += kSecond;
  Wait third(&list, WaitKind::kChunks, "3");
  second.reset();
  third.SetSubject("three");
  std::vector<std::string> subjects;
  for (const WaitList::Entry& entry : list.UnderWay()) subjects.push_back(entry.subject);
  EXPECT_THAT(subjects, ElementsAre("1", "three"));
}

TEST_F(WaitTest, EndsAtTheLimitOfTheUserAndNamesTheWait) {
  WaitList list = Make(/*limit_seconds=*/30);
  const Wait wait(&list, WaitKind::kDiskGrowth, "/nvme0");
  clock_.now += 29 * kSecond;
  EXPECT_TRUE(wait.Check().ok());
  clock_.now += kSecond;
  EXPECT_EQ(wait.Check().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(wait.Check().message()), HasSubstr("waits 30 s for spill files to grow: /nvme0"));
}

TEST_F(WaitTest, WithoutALimitNeverEnds) {
  WaitList list = Make();
  const Wait wait(&list, WaitKind::kDiskGrowth, "");
  clock_.now += 1'000'000 * kSecond;
  EXPECT_TRUE(wait.Check().ok());
}

}  // namespace
}  // namespace spillway::os
