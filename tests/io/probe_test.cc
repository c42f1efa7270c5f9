// Probing: a directory is judged by what its transfers do.

#include "io/probe.h"

#include <gtest/gtest.h>

#include "io/thread_engine.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

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
  const absl::StatusOr<DirectoryReport> report = ProbeDirectory(directory.path());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->file_system.empty());
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

}  // namespace
}  // namespace spillway::io
