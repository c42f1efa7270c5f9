// The queue alone, over memory and over engines that fail: what becomes of one transfer. Through the store it
// is tested by spill_store_fault_test.

#include "io/transfer_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "io/aligned_buffer.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using std::chrono::seconds;

constexpr uint32_t kRequest = 2 * kPageBytes;
constexpr uint32_t kBytes = 5 * kPageBytes;  // three requests, the last one shorter

class TransferQueueTest : public ::testing::Test {
 protected:
  TransferQueueTest() : data_(kBytes) { FillPattern(data_.data(), kBytes, 3); }
  ~TransferQueueTest() override {
    if (queue_ != nullptr && !stopped_) Stop();
  }

  void Start(std::vector<Fault> faults = {}) {
    FaultPlan plan;
    plan.faults = std::move(faults);
    TransferQueueOptions options;
    options.path = "/disk";
    options.drive = "nvme0n1p2";
    options.request_bytes = kRequest;
    auto queue = TransferQueue::Start(MakeFaultyEngine(MakeMemoryEngine({}), plan), options);
    ASSERT_TRUE(queue.ok()) << queue.status();
    queue_ = *std::move(queue);
  }
  void Stop() {
    stopped_ = true;
    queue_->BeginStop(seconds(10));
    EXPECT_TRUE(queue_->FinishStop(seconds(10)));
  }
  absl::Status Move(IoOp op, char* data) {
    auto transfer = std::make_shared<Transfer>();
    transfer->op = op;
    transfer->transfer_class = op == IoOp::kWrite ? TransferClass::kWrite : TransferClass::kDemandRead;
    transfer->bytes = kBytes;
    transfer->data = data;
    Waiter waiter;
    transfer->done = waiter.Expect();
    if (!queue_->Push(std::move(transfer))) return absl::FailedPreconditionError("not taken");
    return waiter.WaitAll()[0];
  }

  AlignedBuffer data_;
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
  EXPECT_EQ(queue_->queued_bytes(), 0u);
  EXPECT_EQ(queue_->place(), "/disk (nvme0n1p2)");
}

TEST_F(TransferQueueTest, AnErrorIsTriedAgainOnceAndThenReported) {
  Fault once{FaultKind::kErrno, IoOp::kWrite, 1, 1};
  Fault twice{FaultKind::kErrno, IoOp::kRead, 1, UINT64_MAX};
  Start({once, twice});
  EXPECT_TRUE(Move(IoOp::kWrite, data_.data()).ok());
  EXPECT_EQ(queue_->counters().retries.load(), 1u);
  EXPECT_EQ(queue_->counters().errors.load(), 0u);
  const absl::Status failed = Move(IoOp::kRead, data_.data());
  EXPECT_FALSE(failed.ok());
  EXPECT_NE(std::string(failed.message()).find("/disk"), std::string::npos) << failed;
  EXPECT_EQ(queue_->counters().errors.load(), 1u);
}

TEST_F(TransferQueueTest, TakesNothingAfterItsEnd) {
  Start();
  Stop();
  EXPECT_TRUE(absl::IsFailedPrecondition(Move(IoOp::kWrite, data_.data())));
}

}  // namespace
}  // namespace spillway::io
