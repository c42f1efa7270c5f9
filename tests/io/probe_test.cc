// Probing: a directory is judged by what its transfers do, and files keep to themselves.

#include "io/probe.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/thread_engine.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/io/loop_mount.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using ::testing::HasSubstr;

absl::Status ProbeWith(FaultKind kind, IoOp op) {
  FaultPlan plan;
  Fault fault;
  fault.kind = kind;
  fault.op = op;
  fault.short_bytes = kPageBytes;
  plan.faults = {fault};
  const std::unique_ptr<IoEngine> engine = MakeFaultyEngine(MakeMemoryEngine({}), plan);
  return ProbeEngine(engine.get());
}

TEST(ProbeTest, FindsEnginesThatDoNotDoWhatTheySay) {
  EXPECT_TRUE(ProbeEngine(MakeMemoryEngine({}).get()).ok());
  for (const IoOp op : {IoOp::kWrite, IoOp::kRead}) {
    EXPECT_FALSE(ProbeWith(FaultKind::kErrno, op).ok());
    EXPECT_FALSE(ProbeWith(FaultKind::kShort, op).ok());
    EXPECT_TRUE(absl::IsDataLoss(ProbeWith(FaultKind::kBitFlip, op)));
  }
  EXPECT_FALSE(ProbeWith(FaultKind::kLost, IoOp::kWrite).ok());
}

TEST(ProbeTest, ReportsOnADirectory) {
  TestDirectory directory;
  const absl::StatusOr<DirectoryReport> report = ProbeDirectory(directory.path(), 16u << 20);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->file_system.empty());
  EXPECT_GT(report->total_bytes, report->free_bytes);
  EXPECT_GT(report->write_bytes_per_second, 1e5);
  EXPECT_GT(report->read_bytes_per_second, 1e5);
  EXPECT_EQ(report->io_uring, report->io_uring_error.empty());
  EXPECT_TRUE(directory.Empty());
  EXPECT_FALSE(ProbeDirectory(directory.path() + "/none").ok());
}

TEST(ProbeTest, UsesThePageCacheWhereDirectTransfersAreRefused) {
  TestDirectory directory;
  SpillStoreOptions options = SmallOptions(directory.path());
  const absl::StatusOr<std::unique_ptr<SpillFile>> file = SpillFile::Create(
      directory.path(), FileSystemCheck::kNormal, DirectIo::kNever, FileNaming::kUnnamedIfPossible);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE((*file)->direct());
  ThreadEngineOptions threads;
  threads.page_cache = PageCache::kDropped;
  const std::unique_ptr<IoEngine> engine = *MakeThreadEngine({(*file)->fd()}, threads);
  EXPECT_TRUE(ProbeEngine(engine.get()).ok());
}

TEST(SpillFileTest, HasNoNameEitherWay) {
  TestDirectory directory;
  for (const FileNaming naming : {FileNaming::kUnnamedIfPossible, FileNaming::kNamedThenUnlinked}) {
    const auto file =
        SpillFile::Create(directory.path(), FileSystemCheck::kNormal, DirectIo::kIfPossible, naming);
    ASSERT_TRUE(file.ok()) << file.status();
    struct stat info;
    ASSERT_EQ(fstat((*file)->fd(), &info), 0);
    EXPECT_EQ(info.st_nlink, 0u);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_TRUE(directory.Empty());
    EXPECT_TRUE((*file)->Grow(4u << 20).ok());
    ASSERT_EQ(fstat((*file)->fd(), &info), 0);
    EXPECT_EQ(info.st_size, 4 << 20);
    EXPECT_GE(info.st_blocks * 512, 4 << 20);  // preallocated, not sparse
  }
}

TEST(SpillFileTest, RemovesTheNameThatAKilledProcessLeft) {
  TestDirectory directory;
  const std::string left = directory.path() + "/.spillway-0123456789abcdef";
  const std::string other = directory.path() + "/.spillway-notes";
  for (const std::string& name : {left, other}) close(creat(name.c_str(), 0600));
  const auto file = SpillFile::Create(directory.path(), FileSystemCheck::kNormal, DirectIo::kIfPossible,
                                      FileNaming::kNamedThenUnlinked);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_NE(access(left.c_str(), F_OK), 0);
  EXPECT_EQ(access(other.c_str(), F_OK), 0);
}

TEST(SpillFileTest, AGrowthThatFailsTakesNothing) {
  LoopMount mount(64);
  if (!mount.mounted()) GTEST_SKIP() << "mounting a loop device is not permitted here";
  const auto file = SpillFile::Create(mount.path(), FileSystemCheck::kNormal, DirectIo::kIfPossible,
                                      FileNaming::kUnnamedIfPossible);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Grow(8u << 20).ok());
  const uint64_t free_before = FreeBytes(mount.path());
  const absl::Status status = (*file)->Grow(200u << 20);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(mount.path()));
  struct stat info;
  ASSERT_EQ(fstat((*file)->fd(), &info), 0);
  EXPECT_EQ(info.st_size, 8 << 20);
  EXPECT_GE(FreeBytes(mount.path()) + (1u << 20), free_before);
  EXPECT_TRUE((*file)->Grow(16u << 20).ok());
}

}  // namespace
}  // namespace spillway::io
