// Disk rates: bounded by time and by space, written before read, with nothing left behind.

#include "io/store/disk_rate.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <vector>

#include "io/os/clock.h"
#include "tests/io/disk_fixture.h"
#include "tests/io/store_helpers.h"

namespace {

bool fallocate_works = true;

}  // namespace

// In place of the C library's, for a file system that has none.
extern "C" int fallocate(int file, int mode, off_t offset, off_t length) {
  if (fallocate_works) return static_cast<int>(::syscall(SYS_fallocate, file, mode, offset, length));
  errno = EOPNOTSUPP;
  return -1;
}

namespace spillway::io {
namespace {

DiskRateOptions Options() {
  DiskRateOptions options;
  options.time = std::chrono::milliseconds(600);
  options.cap_bytes = 64 * kMiB;
  options.reserve_bytes = 1;
  return options;
}

TEST(DiskRateTest, MeasuresBothDirectionsAndLeavesNothing) {
  TestDirectory directory;
  const auto rates = MeasureDisk(directory.path(), Options());
  ASSERT_TRUE(rates.ok()) << rates.status();
  for (const DirectionRate& rate : {rates->write, rates->read}) {
    EXPECT_GT(rate.bytes, 0u);
    EXPECT_LE(rate.bytes, 64 * kMiB);
    EXPECT_GT(rate.PerSecond(), 1e5);
    EXPECT_GT(rate.late_bytes_per_second, 1e5);
  }
  EXPECT_LE(rates->read.bytes, rates->write.bytes);
  EXPECT_TRUE(directory.Empty());
}

TEST(DiskRateTest, IsBoundByTime) {
  TestDirectory directory;
  DiskRateOptions options = Options();
  options.cap_bytes = 2048 * kMiB;
  const auto start = os::SteadyClock::now();
  const auto rates = MeasureDisk(directory.path(), options);
  ASSERT_TRUE(rates.ok()) << rates.status();
  // Transfers under way are waited for, and another process may have the disk.
  EXPECT_LT(os::SteadyClock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(rates->end, rates->write.bytes == options.cap_bytes ? WriteEnd::kLimit : WriteEnd::kTime);
}

TEST(DiskRateTest, IsBoundByTheCap) {
  TestDirectory directory;
  DiskRateOptions options = Options();
  options.time = std::chrono::seconds(60);
  options.cap_bytes = 16 * kMiB;
  const auto rates = MeasureDisk(directory.path(), options);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(rates->end, WriteEnd::kLimit) << "there is more space";
  EXPECT_EQ(rates->write.bytes, 16 * kMiB);
  EXPECT_EQ(rates->read.bytes, 16 * kMiB);
}

using DiskRateOnItsOwnDiskTest = DiskTest;

TEST_F(DiskRateOnItsOwnDiskTest, IsBoundBySpace) {
  MOUNT_OR_SKIP(64);
  DiskRateOptions options = Options();
  options.time = std::chrono::seconds(60);
  options.cap_bytes = 2048 * kMiB;
  const auto rates = MeasureDisk(path(), options);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(rates->end, WriteEnd::kSpace);
  EXPECT_LE(rates->write.bytes, 64 * kMiB);
}

// What growing the file writes counts as well.
TEST(DiskRateTest, WritesNoMoreThanTheCapWhereGrowingMeansWriting) {
  TestDirectory directory;
  DiskRateOptions options = Options();
  options.time = std::chrono::seconds(60);
  for (const uint64_t cap : {8 * kMiB, 16 * kMiB}) {
    options.cap_bytes = cap;
    fallocate_works = false;
    const auto rates = MeasureDisk(directory.path(), options);
    fallocate_works = true;
    ASSERT_TRUE(rates.ok()) << rates.status();
    EXPECT_EQ(rates->write.bytes, cap / 2);
    EXPECT_EQ(rates->end, WriteEnd::kLimit);
  }
}

TEST(DiskRateTest, TouchesNoReserve) {
  TestDirectory directory;
  struct statvfs info = {};
  ASSERT_EQ(::statvfs(directory.path().c_str(), &info), 0);
  DiskRateOptions options = Options();
  options.reserve_bytes = uint64_t{info.f_blocks} * info.f_frsize;
  const auto rates = MeasureDisk(directory.path(), options);
  EXPECT_TRUE(absl::IsResourceExhausted(rates.status())) << rates.status();
  EXPECT_NE(rates.status().message().find("no space to measure in: 0 B beyond the reserve"),
            absl::string_view::npos);
}

// A limit that shows itself only as the file grows.
TEST(DiskRateTest, EndsWhereTheFileCannotGrow) {
  TestDirectory directory;
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_NE(std::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  const struct rlimit small = {20 * kMiB, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  DiskRateOptions options = Options();
  options.time = std::chrono::seconds(60);
  const auto rates = MeasureDisk(directory.path(), options);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(rates->end, WriteEnd::kLimit);
  EXPECT_LE(rates->write.bytes, 20 * kMiB);
}

TEST(DiskRateTest, SaysHowFarItIs) {
  TestDirectory directory;
  std::vector<DiskProgress> reports;
  DiskRateOptions options = Options();
  options.progress = [&](const DiskProgress& progress) { reports.push_back(progress); };
  ASSERT_TRUE(MeasureDisk(directory.path(), options).ok());
  ASSERT_GE(reports.size(), 2u);
  int ends = 0;
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_GE(reports[i].part, 0);
    EXPECT_LE(reports[i].part, 1);
    if (i > 0 && reports[i].op == reports[i - 1].op) {
      EXPECT_GE(reports[i].part, reports[i - 1].part);
      EXPECT_GE(reports[i].bytes, reports[i - 1].bytes);
    }
    ends += reports[i].part == 1 ? 1 : 0;
  }
  EXPECT_GE(ends, 2);
  EXPECT_EQ(reports.front().op, IoOp::kWrite);
  EXPECT_EQ(reports.back().op, IoOp::kRead);
}

TEST(DiskRateTest, ADirectoryThatIsNoneIsAnError) {
  TestDirectory directory;
  EXPECT_TRUE(absl::IsNotFound(MeasureDisk(directory.path() + "/none", Options()).status()));
}

}  // namespace
}  // namespace spillway::io
