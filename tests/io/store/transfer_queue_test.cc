// The queue alone, over memory and over engines that fail: what becomes of one transfer. Through the store it
// is tested by spill_store_fault_test.

#include "io/store/transfer_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "tests/fakes/drive_engine.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kRequest = 2 * kPageBytes;
constexpr uint32_t kBytes = 5 * kPageBytes;  // three requests, the last one shorter

// A clock that goes on by itself, and by what it is told: time that passes at once.
class MovedClock : public os::Clock {
 public:
  int64_t NowNanos() const override { return os::Clock::System()->NowNanos() + moved_.load(); }
  void Move(std::chrono::nanoseconds time) { moved_ += time.count(); }

 private:
  std::atomic<int64_t> moved_{0};
};

// Waiting for results takes no time but the clock's; with nothing in flight it waits as others do.
class HastyEngine : public IoEngine {
 public:
  HastyEngine(MovedClock* clock, std::unique_ptr<IoEngine> inner) : clock_(clock), inner_(std::move(inner)) {}
  const char* name() const override { return inner_->name(); }
  size_t capacity() const override { return inner_->capacity(); }
  void Submit(std::span<const IoRequest> requests) override { inner_->Submit(requests); }
  size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) override {
    if (timeout > seconds(1) || !hastens_.load()) return inner_->Poll(results, timeout);
    ++polls_;
    const size_t count = inner_->Poll(results, std::chrono::nanoseconds::zero());
    if (count == 0) clock_->Move(timeout);
    return count;
  }
  void Wake() override { inner_->Wake(); }
  bool Stop(std::chrono::nanoseconds timeout) override { return inner_->Stop(timeout); }
  uint64_t polls() const { return polls_.load(); }  // with something in flight
  // While false, its clock stands.
  void set_hastens(bool hastens) { hastens_.store(hastens); }

 private:
  MovedClock* const clock_;
  const std::unique_ptr<IoEngine> inner_;
  std::atomic<uint64_t> polls_{0};
  std::atomic<bool> hastens_{true};
};

class TransferQueueTest : public ::testing::Test {
 protected:
  TransferQueueTest() : data_(kBytes) {
    FillPattern(data_.data(), kBytes, 3);
    options_.path = "/disk";
    options_.drive = "nvme0n1p2";
    options_.request_bytes = kRequest;
    options_.silence_changed = [this](bool silent) {
      silent_ = silent;
      ++changes_;
    };
  }
  ~TransferQueueTest() override {
    if (queue_ != nullptr && !stopped_) Stop();
  }

  void Start(std::vector<Fault> faults = {}) {
    FaultPlan plan;
    plan.faults = std::move(faults);
    StartOver(MakeFaultyEngine(MakeMemoryEngine({}), plan, counters_));
  }
  // The same, on a clock that does not keep the test waiting.
  void StartHastily(std::vector<Fault> faults) {
    FaultPlan plan;
    plan.faults = std::move(faults);
    options_.clock = &clock_;
    auto engine =
        std::make_unique<HastyEngine>(&clock_, MakeFaultyEngine(MakeMemoryEngine({}), plan, counters_));
    hasty_ = engine.get();
    StartOver(std::move(engine));
  }
  void StartOver(std::unique_ptr<IoEngine> engine) {
    auto queue = TransferQueue::Start(std::move(engine), options_);
    ASSERT_TRUE(queue.ok()) << queue.status();
    queue_ = *std::move(queue);
  }
  void Stop(std::chrono::nanoseconds timeout = seconds(10)) {
    stopped_ = true;
    queue_->BeginStop(timeout);
    EXPECT_TRUE(queue_->FinishStop(seconds(10)));
  }
  absl::Status Move(IoOp op, char* data) {
    Waiter waiter;
    return Begin(op, data, &waiter) ? waiter.WaitAll()[0] : absl::FailedPreconditionError("not taken");
  }
  bool Begin(IoOp op, char* data, Waiter* waiter) {
    auto transfer = std::make_shared<Transfer>();
    transfer->op = op;
    transfer->transfer_class = op == IoOp::kWrite ? TransferClass::kWrite : TransferClass::kDemandRead;
    transfer->bytes = kBytes;
    transfer->data = data;
    transfer->done = waiter->Expect();
    return queue_->Push(std::move(transfer));
  }

  std::atomic<bool> silent_{false};
  std::atomic<int> changes_{0};  // of it
  AlignedBuffer data_;
  MovedClock clock_;
  HastyEngine* hasty_ = nullptr;  // the queue's
  TransferQueueOptions options_;
  std::shared_ptr<FaultCounters> counters_ = std::make_shared<FaultCounters>();
  bool stopped_ = false;
  std::shared_ptr<TransferQueue> queue_;
};

TEST_F(TransferQueueTest, CutsATransferIntoRequestsAndCountsItsBytes) {
  Start();
  AlignedBuffer back(kBytes);
  EXPECT_TRUE(Move(IoOp::kWrite, data_.data()).ok());
  EXPECT_TRUE(Move(IoOp::kRead, back.data()).ok());
  EXPECT_EQ(std::memcmp(back.data(), data_.data(), kBytes), 0);
  EXPECT_EQ(queue_->counters().bytes_written.load(), kBytes);
  EXPECT_EQ(queue_->counters().bytes_read.load(), kBytes);
  for (IoOp op : {IoOp::kRead, IoOp::kWrite}) {
    EXPECT_EQ(queue_->queued_bytes(op), 0u);
    EXPECT_GT(queue_->BytesPerSecond(op), 0);
  }
  EXPECT_EQ(queue_->place(), "/disk (nvme0n1p2)");
}

TEST_F(TransferQueueTest, AWriteIsTriedAgainForSomeSecondsAndThenReported) {
  StartHastily({Fault{FaultKind::kErrno, IoOp::kWrite, 1, 15}});
  EXPECT_TRUE(Move(IoOp::kWrite, data_.data()).ok()) << "three requests, five errors each: 31 ms";
  EXPECT_EQ(queue_->counters().retries.load(), 15u);
  EXPECT_EQ(queue_->counters().errors.load(), 0u);
  Stop();
  StartHastily({Fault{FaultKind::kErrno, IoOp::kWrite, 1, UINT64_MAX}});
  stopped_ = false;
  const int64_t began = clock_.NowNanos();
  const absl::Status failed = Move(IoOp::kWrite, data_.data());
  EXPECT_FALSE(failed.ok());
  EXPECT_NE(std::string(failed.message()).find("/disk"), std::string::npos) << failed;
  EXPECT_EQ(queue_->counters().errors.load(), 1u);
  EXPECT_GE(clock_.NowNanos() - began, std::chrono::nanoseconds(seconds(2)).count());
  EXPECT_LE(queue_->counters().retries.load(), 45u) << "with growing pauses";
}

TEST_F(TransferQueueTest, AReadIsTriedUntilItSucceeds) {
  for (const int error : {EIO, ETIMEDOUT, ENOLINK, ENOMEM}) {
    StartHastily({Fault{FaultKind::kErrno, IoOp::kRead, 1, 3000, error}});
    ASSERT_TRUE(Move(IoOp::kWrite, data_.data()).ok());
    const absl::Status status = Move(IoOp::kRead, data_.data());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(queue_->counters().errors.load(), 0u);
    Stop();
    stopped_ = false;
    counters_ = std::make_shared<FaultCounters>();
  }
  stopped_ = true;
}

TEST_F(TransferQueueTest, AReadWhoseBytesAreGoneEndsAfterSomeSeconds) {
  for (const int error : {ENODATA, EILSEQ, EINVAL}) {
    StartHastily({Fault{FaultKind::kErrno, IoOp::kRead, 1, UINT64_MAX, error}});
    const absl::Status status = Move(IoOp::kRead, data_.data());
    EXPECT_NE(std::string(status.message()).find("read of"), std::string::npos) << status;
    EXPECT_EQ(queue_->counters().errors.load(), 1u);
    Stop();
    stopped_ = false;
  }
  stopped_ = true;
}

TEST_F(TransferQueueTest, OfAProbeTheFirstErrorCounts) {
  Start({Fault{FaultKind::kErrno, IoOp::kWrite, 1, 1}});
  Waiter waiter;
  Transfer probe{.op = IoOp::kWrite,
                 .transfer_class = TransferClass::kWrite,
                 .bytes = kRequest,
                 .data = data_.data(),
                 .done = waiter.Expect(),
                 .retries = false};
  ASSERT_TRUE(queue_->Push(std::make_shared<Transfer>(std::move(probe))));
  EXPECT_FALSE(waiter.WaitAll()[0].ok());
  EXPECT_EQ(queue_->counters().retries.load(), 0u);
}

// ---- Drives that are silent.

class SilentDriveTest : public TransferQueueTest {
 protected:
  SilentDriveTest() {
    options_.clock = &clock_;
    auto engine = std::make_unique<DriveEngine>(drive_, MakeMemoryEngine({}));
    auto hasty = std::make_unique<HastyEngine>(&clock_, std::move(engine));
    hasty_ = hasty.get();
    StartOver(std::move(hasty));
    EXPECT_TRUE(Move(IoOp::kWrite, data_.data()).ok());
  }

  std::shared_ptr<Drive> drive_ = std::make_shared<Drive>();
};

TEST_F(SilentDriveTest, AReadWaitsUntilTheDriveComesBack) {
  drive_->Set(IoOp::kRead, Drive::kHolds);
  Waiter waiter;
  AlignedBuffer back(kBytes);
  ASSERT_TRUE(Begin(IoOp::kRead, back.data(), &waiter));
  ASSERT_TRUE(tests::WaitUntil([&] { return silent_.load(); }));
  const int64_t now = clock_.NowNanos();
  ASSERT_TRUE(tests::WaitUntil(
      [&] { return clock_.NowNanos() - now > std::chrono::nanoseconds(seconds(70)).count(); }));
  drive_->Heal();
  EXPECT_TRUE(waiter.WaitAll()[0].ok());
  EXPECT_EQ(std::memcmp(back.data(), data_.data(), kBytes), 0);
  EXPECT_TRUE(tests::WaitUntil([&] { return !silent_.load() && changes_ == 2; }));
}

TEST_F(SilentDriveTest, AWriteIsGivenUpAndItsAnswerIsReported) {
  drive_->Set(IoOp::kWrite, Drive::kHolds);
  Waiter waiter;
  std::atomic<int> answered{0};
  Transfer write{.op = IoOp::kWrite,
                 .transfer_class = TransferClass::kWrite,
                 .bytes = kBytes,
                 .data = data_.data(),
                 .done = waiter.Expect(),
                 .answered = [&] { ++answered; }};
  ASSERT_TRUE(queue_->Push(std::make_shared<Transfer>(std::move(write))));
  const absl::Status status = waiter.WaitAll()[0];
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(answered, 0);
  EXPECT_TRUE(absl::IsUnavailable(Move(IoOp::kWrite, data_.data()))) << "nothing is added to the silence";
  drive_->Heal();
  EXPECT_TRUE(tests::WaitUntil([&] { return answered == 1 && !silent_.load(); }));
  EXPECT_TRUE(Move(IoOp::kWrite, data_.data()).ok());
}

TEST_F(SilentDriveTest, WritesThatAreSwallowedLeavePlacesForReads) {
  drive_->Set(IoOp::kWrite, Drive::kSwallows);
  hasty_->set_hastens(false);  // else the drive may be silent before the last write begins
  Waiter writes;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Begin(IoOp::kWrite, data_.data(), &writes));
  EXPECT_TRUE(tests::WaitUntil([&] { return drive_->touched(IoOp::kWrite) >= 12; }));
  hasty_->set_hastens(true);
  AlignedBuffer back(kBytes);
  EXPECT_TRUE(Move(IoOp::kRead, back.data()).ok());
  for (const absl::Status& status : writes.WaitAll())
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(silent_.load());
  EXPECT_TRUE(Move(IoOp::kRead, back.data()).ok()) << "and for ever";
}

TEST_F(TransferQueueTest, ARequestThatTakesLongIsLookedAtNowAndThen) {
  StartHastily({Fault{FaultKind::kNever, IoOp::kWrite, 1}});
  EXPECT_TRUE(absl::IsDeadlineExceeded(Move(IoOp::kWrite, data_.data())));
  EXPECT_LT(hasty_->polls(), 1000u) << "in half a minute";
}

TEST_F(TransferQueueTest, AtTheEndARequestThatNeverCameBackCountsMoreThanACancelledOne) {
  Fault endless{FaultKind::kErrno, IoOp::kRead, 4, UINT64_MAX, EAGAIN};
  Start({Fault{FaultKind::kErrno, IoOp::kRead, 1, 1, EAGAIN}, Fault{FaultKind::kNever, IoOp::kRead, 2},
         endless});
  Waiter waiter;
  ASSERT_TRUE(Begin(IoOp::kRead, data_.data(), &waiter));
  ASSERT_TRUE(tests::WaitUntil([&] { return counters_->injected.load() >= 10; }));
  Stop(milliseconds(50));
  const absl::Status status = waiter.WaitAll()[0];
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST_F(TransferQueueTest, WorkThatTheKernelCancelsIsAnInterruption) {
  Start({Fault{FaultKind::kErrno, IoOp::kRead, 1, 3, ECANCELED}});
  ASSERT_TRUE(Move(IoOp::kWrite, data_.data()).ok());
  const absl::Status status = Move(IoOp::kRead, data_.data());
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(TransferQueueTest, InterruptionsHaveTheTimeOfSilence) {
  StartHastily({Fault{FaultKind::kErrno, IoOp::kRead, 1, 300, EAGAIN}});  // about 3 s
  ASSERT_TRUE(Move(IoOp::kWrite, data_.data()).ok());
  const absl::Status status = Move(IoOp::kRead, data_.data());
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(TransferQueueTest, EndlessInterruptionsAreAnErrorAfterThatTime) {
  for (const int error : {EAGAIN, ENOMEM, ECANCELED}) {
    StartHastily({Fault{FaultKind::kErrno, IoOp::kWrite, 1, UINT64_MAX, error}});
    const absl::Status status = Move(IoOp::kWrite, data_.data());
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_FALSE(silent_.load());
    Stop();
    stopped_ = false;
  }
  stopped_ = true;
}

// The process is stopped in the first Poll with a request in flight; its result is there afterwards.
class StoppedEngine : public IoEngine {
 public:
  StoppedEngine(MovedClock* clock, std::unique_ptr<IoEngine> inner)
      : clock_(clock), inner_(std::move(inner)) {}
  const char* name() const override { return inner_->name(); }
  size_t capacity() const override { return inner_->capacity(); }
  void Submit(std::span<const IoRequest> requests) override {
    submitted_ += requests.size();
    inner_->Submit(requests);
  }
  size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) override {
    if (submitted_ == 0 || std::exchange(was_stopped_, true)) return inner_->Poll(results, timeout);
    clock_->Move(timeout + seconds(61));
    return 0;
  }
  void Wake() override { inner_->Wake(); }
  bool Stop(std::chrono::nanoseconds timeout) override { return inner_->Stop(timeout); }

 private:
  MovedClock* const clock_;
  const std::unique_ptr<IoEngine> inner_;
  size_t submitted_ = 0;
  bool was_stopped_ = false;
};

TEST_F(TransferQueueTest, TheTimeInWhichTheProcessWasStoppedDoesNotCount) {
  options_.clock = &clock_;
  StartOver(std::make_unique<StoppedEngine>(&clock_, MakeMemoryEngine({.latency = milliseconds(20)})));
  const absl::Status status = Move(IoOp::kWrite, data_.data());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(silent_.load());
  Stop();
}

TEST_F(TransferQueueTest, ADiskThatIsBusyAtTheEndIsNotCalledSilent) {
  testing::internal::CaptureStderr();
  StartOver(MakeFaultyEngine(MakeMemoryEngine({.latency = seconds(30)}), {}, counters_));
  Waiter waiter;
  ASSERT_TRUE(Begin(IoOp::kWrite, data_.data(), &waiter));
  ASSERT_TRUE(tests::WaitUntil([&] { return counters_->writes.load() == 3; }));
  Stop(milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(waiter.WaitAll()[0]));
  EXPECT_FALSE(silent_.load());
  EXPECT_EQ(queue_->counters().errors.load(), 0u);
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines.find("does not answer"), std::string::npos) << lines;
}

// One that is under way when the last of it is used ends; reads are not written.
TEST_F(TransferQueueTest, WritesWaitForTheWriteBudgetAndReadsDoNot) {
  std::atomic<int64_t> unix_nanos = 1'700'000'000'000'000'000;
  WriteBudget budget({2 * kBytes - kRequest, std::chrono::hours(1), "", [&] { return unix_nanos.load(); }});
  options_.write_budget = &budget;
  Start();
  EXPECT_TRUE(Move(IoOp::kWrite, data_.data()).ok());
  Waiter second;
  ASSERT_TRUE(Begin(IoOp::kWrite, data_.data(), &second));
  AlignedBuffer read(kBytes);
  EXPECT_TRUE(Move(IoOp::kRead, read.data()).ok());
  ASSERT_TRUE(tests::WaitUntil([&] { return counters_->writes.load() == 5; })) << "all but its last request";
  EXPECT_EQ(budget.left_bytes(), 0u);
  EXPECT_EQ(queue_->counters().bytes_written.load(), kBytes);
  EXPECT_TRUE(budget.Record().ok());
  unix_nanos += std::chrono::nanoseconds(std::chrono::minutes(30)).count();
  EXPECT_TRUE(second.WaitAll()[0].ok());
  EXPECT_EQ(queue_->counters().bytes_written.load(), 2 * kBytes);
}

TEST_F(TransferQueueTest, WritesThatWaitForTheWriteBudgetAreCancelledAtTheEnd) {
  WriteBudget budget({.bytes = kRequest, .interval = std::chrono::hours(24)});
  budget.CountWritten(kBytes);
  options_.write_budget = &budget;
  Start();
  Waiter waiter;
  ASSERT_TRUE(Begin(IoOp::kWrite, data_.data(), &waiter));
  Stop();
  EXPECT_TRUE(absl::IsCancelled(waiter.WaitAll()[0]));
  EXPECT_EQ(counters_->writes.load(), 0);
}

TEST_F(TransferQueueTest, TakesNothingAfterItsEnd) {
  Start();
  Stop();
  EXPECT_TRUE(absl::IsFailedPrecondition(Move(IoOp::kWrite, data_.data())));
}

}  // namespace
}  // namespace spillway::io
