#include "io/store/write_budget.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/sizes.h"

namespace spillway::io {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using ::testing::HasSubstr;

constexpr int64_t kHour = 3600 * int64_t{1'000'000'000};

// A folder and a wall clock of the test's own.
class WriteBudgetTest : public ::testing::Test {
 protected:
  WriteBudgetTest() {
    char name[] = "/tmp/write-budget-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ / "cache" / "spillway" / "writes";
  }
  ~WriteBudgetTest() override { std::filesystem::remove_all(folder_); }

  WriteBudget::Options Options(uint64_t bytes, std::string path) {
    return {.bytes = bytes, .interval = hours(24), .path = std::move(path), .unix_nanos = [this] {
              return now_;
            }};
  }
  WriteBudget::Options ADay(uint64_t bytes) { return Options(bytes, path_.string()); }

  std::filesystem::path folder_, path_;
  int64_t now_ = 1'700'000'000 * int64_t{1'000'000'000};
};

TEST_F(WriteBudgetTest, IsSpentByWhatIsWrittenAndComesFreeOverThePeriod) {
  WriteBudget budget(ADay(240 * kMiB));
  EXPECT_FALSE(budget.spent());
  EXPECT_EQ(budget.left_bytes(), 240 * kMiB);
  budget.CountWritten(239 * kMiB);
  EXPECT_FALSE(budget.spent());
  EXPECT_EQ(budget.UntilNextWrite().count(), 0);
  budget.CountWritten(61 * kMiB);  // the write that took the last of it is whole
  EXPECT_TRUE(budget.spent());
  EXPECT_NEAR(std::chrono::duration<double>(budget.UntilNextWrite()).count(), 6 * 3600, 1);
  EXPECT_EQ(budget.left_bytes(), 0u);
  ASSERT_TRUE(budget.Record().ok());
  now_ += 6 * kHour + 1'000'000;  // 60 of 300 are free again, and the budget is 240
  EXPECT_EQ(budget.UntilNextWrite().count(), 0);
  EXPECT_TRUE(budget.spent()) << "until a sixteenth is left";
  EXPECT_NEAR(std::chrono::duration<double>(budget.UntilFree()).count(), 1.5 * 3600, 1);
  now_ += kHour + kHour / 2;
  EXPECT_FALSE(budget.spent());
  EXPECT_EQ(budget.UntilFree().count(), 0);
  EXPECT_NEAR(static_cast<double>(budget.left_bytes()), 15 * kMiB, 16);
  EXPECT_NEAR(budget.bytes_per_second(), 240.0 * kMiB / 86400, 1e-3);
}

TEST_F(WriteBudgetTest, HoldsOverRunsWhateverTheirBudgets) {
  {
    WriteBudget first(ADay(100 * kMiB));
    ASSERT_TRUE(first.Record().ok());
    first.CountWritten(90 * kMiB);
    ASSERT_TRUE(first.Record().ok());
  }
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(path_.parent_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);

  WriteBudget same(ADay(100 * kMiB)), larger(ADay(200 * kMiB)), smaller(ADay(80 * kMiB));
  EXPECT_EQ(same.left_bytes(), 100 * kMiB) << "nothing was read yet";
  for (WriteBudget* budget : {&same, &larger, &smaller}) ASSERT_TRUE(budget->Record().ok());
  EXPECT_EQ(same.left_bytes(), 10 * kMiB);
  EXPECT_EQ(larger.left_bytes(), 110 * kMiB);
  EXPECT_TRUE(smaller.spent());
  now_ += 48 * kHour;
  WriteBudget later(ADay(100 * kMiB));
  ASSERT_TRUE(later.Record().ok());
  EXPECT_EQ(later.left_bytes(), 100 * kMiB);
}

TEST_F(WriteBudgetTest, AddsUpWhatProcessesWriteAtTheSameTime) {
  WriteBudget one(ADay(100 * kMiB)), other(ADay(100 * kMiB));
  for (int i = 0; i < 10; ++i) {
    one.CountWritten(3 * kMiB);
    other.CountWritten(2 * kMiB);
    ASSERT_TRUE(one.Record().ok());
    ASSERT_TRUE(other.Record().ok());
  }
  EXPECT_EQ(other.left_bytes(), 50 * kMiB);
  ASSERT_TRUE(one.Record().ok());
  EXPECT_EQ(one.left_bytes(), 50 * kMiB);
}

TEST_F(WriteBudgetTest, WithoutARecordCountsAlone) {
  WriteBudget budget(Options(100 * kMiB, ""));
  budget.CountWritten(70 * kMiB);
  EXPECT_TRUE(budget.Record().ok());
  budget.CountWritten(30 * kMiB);
  EXPECT_TRUE(budget.Record().ok());
  EXPECT_TRUE(budget.spent());
}

// What could not be recorded is not lost: it counts here, and is recorded later.
TEST_F(WriteBudgetTest, AddsLaterWhatCouldNotBeRecorded) {
  WriteBudget budget(ADay(100 * kMiB));
  std::filesystem::create_directories(path_.parent_path());
  std::filesystem::create_symlink("/dev/null", path_);
  budget.CountWritten(40 * kMiB);
  const absl::Status refused = budget.Record();
  EXPECT_THAT(std::string(refused.message()), HasSubstr(path_.string()));
  EXPECT_EQ(budget.left_bytes(), 60 * kMiB);
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_FALSE(budget.Record().ok());
  EXPECT_EQ(budget.left_bytes(), 60 * kMiB);
  std::filesystem::remove(path_);
  ASSERT_TRUE(budget.Record().ok());
  WriteBudget next(ADay(100 * kMiB));
  ASSERT_TRUE(next.Record().ok());
  EXPECT_EQ(next.left_bytes(), 60 * kMiB);
}

TEST_F(WriteBudgetTest, BeginsADamagedRecordAnewAndSaysSo) {
  WriteBudget budget(ADay(100 * kMiB));
  budget.CountWritten(90 * kMiB);
  ASSERT_TRUE(budget.Record().ok());
  for (const std::string content : {"something else", "spillway-writes 1 0 0 0\n"}) {
    std::ofstream(path_) << content;
    WriteBudget next(ADay(100 * kMiB));
    next.CountWritten(5 * kMiB);
    const absl::Status status = next.Record();
    EXPECT_THAT(std::string(status.message()), HasSubstr("it was damaged, and begins anew")) << content;
    EXPECT_EQ(next.left_bytes(), 95 * kMiB);
    EXPECT_TRUE(next.Record().ok());
  }
}

TEST_F(WriteBudgetTest, AClockThatWasSetFreesNothingAndLocksNobodyOut) {
  WriteBudget budget(ADay(100 * kMiB));
  budget.CountWritten(100 * kMiB);
  ASSERT_TRUE(budget.Record().ok());
  now_ -= 1000 * kHour;  // back
  EXPECT_TRUE(budget.spent());
  ASSERT_TRUE(budget.Record().ok());
  EXPECT_TRUE(budget.spent());
  now_ += 12 * kHour;
  EXPECT_EQ(budget.left_bytes(), 50 * kMiB);
}

// A process that was stopped while it had the lock.
TEST_F(WriteBudgetTest, DoesNotWaitForAProcessThatKeepsTheLock) {
  WriteBudget budget(ADay(100 * kMiB));
  ASSERT_TRUE(budget.Record().ok());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(path_.c_str(), O_RDWR);
    struct flock all = {};
    all.l_type = F_WRLCK;
    const char taken = fcntl(fd, F_OFD_SETLK, &all) == 0;
    if (write(ready[1], &taken, 1) == 1) pause();
    _exit(0);
  }
  char taken = 0;
  ASSERT_EQ(read(ready[0], &taken, 1), 1);
  ASSERT_EQ(taken, 1);
  budget.CountWritten(10 * kMiB);
  EXPECT_THAT(std::string(budget.Record().message()), HasSubstr("another process has it locked"));
  EXPECT_EQ(budget.left_bytes(), 90 * kMiB);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(budget.Record().ok());
  for (const int fd : ready) close(fd);
}

}  // namespace
}  // namespace spillway::io
