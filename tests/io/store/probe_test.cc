// Probing: a directory is judged by what its transfers do.

#include "io/store/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "io/engine/thread_engine.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/fakes/thread_state.h"
#include "tests/fakes/wait_until.h"
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

// Writes well, and keeps each read: the kernel still has it, and moves its bytes when the disk answers.
class StuckEngine : public IoEngine {
 public:
  explicit StuckEngine(std::vector<IoRequest>* kept, int* stops) : kept_(kept), stops_(stops) {}

  const char* name() const override { return "stuck"; }
  size_t capacity() const override { return 1; }
  void Submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) {
      if (request.op == IoOp::kRead) kept_->push_back(request);
      if (request.op == IoOp::kWrite) memory_->Submit({&request, 1});
    }
  }
  size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) override {
    return memory_->Poll(results, timeout);
  }
  void Wake() override { memory_->Wake(); }
  bool Stop(std::chrono::nanoseconds) override {
    ++*stops_;
    return false;
  }

 private:
  std::vector<IoRequest>* const kept_;
  int* const stops_;
  const std::unique_ptr<IoEngine> memory_ = MakeMemoryEngine({});
};

TEST(ProbeTest, BuffersOfATransferThatDoesNotEndAreNotUsedAgain) {
  std::vector<IoRequest> kept;
  int stops = 0;
  const auto engine = std::make_unique<StuckEngine>(&kept, &stops);
  const absl::Status status = ProbeEngine(engine.get(), std::chrono::milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(stops, 1);
  ASSERT_EQ(kept.size(), 1u);
  // What malloc hands out now is what a late read would damage.
  std::vector<std::unique_ptr<AlignedBuffer>> others;
  for (int i = 0; i < 16; ++i) {
    others.push_back(std::make_unique<AlignedBuffer>(kept[0].length));
    std::memset(others.back()->data(), 0, others.back()->size());
  }
  std::memset(kept[0].buffer, 1, kept[0].length);
  for (const auto& other : others) EXPECT_EQ(other->data()[0], 0);
}

TEST(ProbeTest, ADirectoryThatDoesNotAnswerGetsNoSecondEngine) {
  TestDirectory directory;
  SpillStoreOptions options = SmallOptions(directory.path());
  options.probe_timeout = std::chrono::milliseconds(50);
  std::vector<IoRequest> kept;
  int stops = 0;
  int engines = 0;
  options.wrap_probed_engine = [&](const std::unique_ptr<IoEngine>&) {
    ++engines;
    return std::make_unique<StuckEngine>(&kept, &stops);
  };
  const absl::Status status = OpenDirectory(directory.path(), options).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory.path()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not answer"));
  EXPECT_EQ(engines, 1);
}

TEST(ProbeTest, GoesOnAfterInterruptions) {
  for (const int error : {EINTR, EAGAIN, ENOMEM, ECANCELED}) {
    FaultPlan plan;
    plan.faults = {Fault{.op = IoOp::kWrite, .count = 3, .error = error},
                   Fault{.op = IoOp::kRead, .count = 3, .error = error}};
    const absl::Status status = ProbeEngine(MakeFaultyEngine(MakeMemoryEngine({}), plan).get());
    EXPECT_TRUE(status.ok()) << status;
  }
}

// The kernel hands a completion to the thread that submitted the request. The one that probed may then be in
// a long call; here it waits for a child of vfork, which nothing interrupts, and which ends once the wake-up
// has come.
TEST(ProbeTest, AWakeUpDoesNotWaitForTheThreadThatProbed) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP()
      << "ThreadSanitizer makes a fork of vfork: the child has memory of its own, and nothing waits for it";
#endif
  TestDirectory directory;
  SpillStoreOptions options = SmallOptions(directory.path());
  options.engine = EngineKind::kUring;
  absl::StatusOr<OpenedDirectory> opened = OpenDirectory(directory.path(), options);
  if (!opened.ok()) GTEST_SKIP() << opened.status();
  int woken[2];
  ASSERT_EQ(pipe(woken), 0);
  std::atomic<pid_t> driver_thread{0};
  std::thread driver([&] {
    driver_thread = gettid();
    IoResult result;
    EXPECT_EQ(opened->engine->Poll({&result, 1}, tests::kPatience), 0u);
    EXPECT_EQ(write(woken[1], "w", 1), 1);
  });
  std::atomic<bool> child_runs{false};
  std::thread waker([&] {
    child_runs.wait(false);
    opened->engine->Wake();
  });
  EXPECT_TRUE(tests::WaitUntil([&] { return tests::ThreadWaits(driver_thread.load()); }));
  const pid_t child = vfork();
  if (child == 0) {
    child_runs = true;
    child_runs.notify_one();
    pollfd wake_up = {.fd = woken[0], .events = POLLIN, .revents = 0};
    _exit(poll(&wake_up, 1, 10'000) == 1 ? 0 : 1);
  }
  driver.join();
  waker.join();
  ASSERT_GT(child, 0);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the wake-up came after the child's end";
  close(woken[0]);
  close(woken[1]);
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
  threads.page_cache = PageCache::kWrittenThrough;
  const std::unique_ptr<IoEngine> engine = *MakeThreadEngine({(*file)->fd()}, threads);
  EXPECT_TRUE(ProbeEngine(engine.get()).ok());
}

}  // namespace
}  // namespace spillway::io
