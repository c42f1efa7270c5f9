// Drives that hiccup under a store and come back: what becomes of transfers, of capacity and of slots.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "io/store/spill_store.h"
#include "tests/fakes/drive_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using tests::WaitUntil;

constexpr uint64_t kMiB = 1u << 20;

class SpillClosedTest : public ::testing::Test {
 protected:
  SpillClosedTest() : data_(kSlotBytes), back_(kSlotBytes) { FillPattern(data_.data(), kSlotBytes, 1); }

  SpillStoreOptions Options() {
    SpillStoreOptions options = SmallOptions(directory_.path());
    options.request_timeout = milliseconds(300);
    options.first_probe = milliseconds(20);
    // In memory: a file on a busy machine may be silent for longer than that.
    options.wrap_engine = [this](std::unique_ptr<IoEngine> inner, size_t) {
      return std::make_unique<DriveEngine>(drive_, MakeMemoryEngine({.capacity = inner->capacity()}));
    };
    return options;
  }
  void Open(const SpillStoreOptions& options) {
    store_ = MakeStore(options);
    for (const SlotId slot : good_ = Reserve(store_.get(), 4))
      ASSERT_TRUE(WriteSync(store_.get(), slot, data_.data(), kSlotBytes).ok());
  }
  bool Closed() const { return store_->stats().directories[0].closed; }
  // Writes fail until the directory is closed.
  void CloseByErrors() {
    drive_->Set(IoOp::kWrite, EIO);
    Waiter waiter;
    const std::vector<SlotId> slots = Reserve(store_.get(), 8);
    for (const SlotId slot : slots) store_->Write(slot, data_.data(), kSlotBytes, waiter.Expect());
    for (const absl::Status& status : waiter.WaitAll()) EXPECT_FALSE(status.ok());
    ASSERT_TRUE(Closed());
    for (const SlotId slot : slots) store_->ReleaseSlot(slot);
  }
  void ExpectGoodSlotsReadBack() {
    for (const SlotId slot : good_) {
      std::memset(back_.data(), 0, kSlotBytes);
      const absl::Status status = ReadSync(store_.get(), slot, back_.data(), kSlotBytes);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(std::memcmp(back_.data(), data_.data(), kSlotBytes), 0);
    }
  }

  TestDirectory directory_;
  std::shared_ptr<Drive> drive_ = std::make_shared<Drive>();
  AlignedBuffer data_;
  AlignedBuffer back_;
  std::vector<SlotId> good_;
  std::unique_ptr<SpillStore> store_;
};

TEST_F(SpillClosedTest, AMomentOfErrorsIsNoticedByNobody) {
  Open(Options());
  const std::vector<SlotId> slots = Reserve(store_.get(), 8);
  for (const IoOp op : {IoOp::kWrite, IoOp::kRead}) {
    drive_->Set(op, EIO);
    Waiter waiter;
    std::vector<std::unique_ptr<AlignedBuffer>> buffers;
    for (const SlotId slot : slots) {
      if (op == IoOp::kWrite) {
        store_->Write(slot, data_.data(), kSlotBytes, waiter.Expect());
        continue;
      }
      buffers.push_back(std::make_unique<AlignedBuffer>(kSlotBytes));
      store_->Read(slot, buffers.back()->data(), kSlotBytes, Priority::kDemand, waiter.Expect());
    }
    ASSERT_TRUE(WaitUntil([&] { return drive_->touched(op) >= 40; }))
        << "each place has failed more than once";
    drive_->Heal();
    for (const absl::Status& status : waiter.WaitAll()) EXPECT_TRUE(status.ok()) << status;
    for (const auto& buffer : buffers) EXPECT_EQ(std::memcmp(buffer->data(), data_.data(), kSlotBytes), 0);
  }
  const DirectoryStats stats = store_->stats().directories[0];
  EXPECT_FALSE(stats.closed);
  EXPECT_EQ(stats.times_closed, 0u);
  EXPECT_EQ(stats.errors, 0u);
  EXPECT_EQ(stats.slots_quarantined, 0u);
}

TEST_F(SpillClosedTest, ADirectoryClosedByErrorsOpensAfterAProbeWithAllItsSlots) {
  testing::internal::CaptureStderr();
  SpillStoreOptions options = Options();
  options.retry_time = milliseconds(20);
  Open(options);
  const uint64_t capacity = store_->capacity_bytes();
  CloseByErrors();
  EXPECT_EQ(store_->capacity_bytes(), 0u);
  EXPECT_THAT(store_->stats().directories[0].why_closed, HasSubstr("errno 5"));
  ExpectGoodSlotsReadBack();
  const absl::Status taken = store_->TakeSlots(1).status();
  EXPECT_TRUE(absl::IsUnavailable(taken)) << taken;
  EXPECT_THAT(std::string(taken.message()), HasSubstr(directory_.path()));
  drive_->Heal();
  ASSERT_TRUE(WaitUntil([&] { return !Closed(); }));
  EXPECT_GE(store_->capacity_bytes(), capacity);
  EXPECT_EQ(store_->stats().directories[0].slots_quarantined, 0u);
  EXPECT_EQ(store_->stats().directories[0].times_closed, 1u);
  EXPECT_THAT(store_->stats().directories[0].last_closure, HasSubstr("errno 5"));
  ExpectGoodSlotsReadBack();
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("; it is tried again"));
  EXPECT_THAT(lines, HasSubstr("gets no new spill slots until a probe passes"));
  EXPECT_THAT(lines, HasSubstr("works again and gets spill slots"));
}

// Each failed write puts a slot out of use. Too seldom to close the directory they would take all of them.
TEST_F(SpillClosedTest, SlotsThatFailedSeldomAreProbedWhenTheyLack) {
  SpillStoreOptions options = Options();
  options.retry_time = milliseconds(5);
  options.errors_until_closed = 1000;
  options.directories[0].cap_bytes = 12 * kSlotBytes;
  Open(options);
  drive_->Set(IoOp::kWrite, EIO);
  const std::vector<SlotId> slots = Reserve(store_.get(), 8);
  for (const SlotId slot : slots) {
    EXPECT_FALSE(WriteSync(store_.get(), slot, data_.data(), kSlotBytes).ok());
    store_->ReleaseSlot(slot);
  }
  EXPECT_EQ(store_->stats().directories[0].slots_quarantined, 8u);
  EXPECT_FALSE(Closed());
  EXPECT_TRUE(WaitUntil([&] { return absl::IsResourceExhausted(store_->TakeSlots(9).status()); }))
      << "more than there are";
  EXPECT_FALSE(Closed());
  EXPECT_TRUE(WaitUntil([&] { return !store_->TakeSlots(8).ok() && Closed(); }));
  EXPECT_THAT(store_->stats().directories[0].why_closed, HasSubstr("writes failed in 8 slots"));
  drive_->Heal();
  EXPECT_TRUE(store_->GrowTo(12 * kSlotBytes).ok());
  EXPECT_TRUE(store_->TakeSlots(8).ok());
  ExpectGoodSlotsReadBack();
}

TEST_F(SpillClosedTest, AProbeThatFailsLeavesTheDirectoryClosed) {
  SpillStoreOptions options = Options();
  options.retry_time = milliseconds(20);
  Open(options);
  CloseByErrors();
  const int writes = drive_->touched(IoOp::kWrite);
  drive_->Set(IoOp::kRead, EIO);
  drive_->Set(IoOp::kWrite, EIO);
  ASSERT_TRUE(WaitUntil([&] { return drive_->touched(IoOp::kWrite) > writes; })) << "the probe's write";
  drive_->Set(IoOp::kWrite, Drive::kWell);
  ASSERT_TRUE(WaitUntil([&] { return drive_->touched(IoOp::kRead) > 0; })) << "the next one's read";
  EXPECT_TRUE(Closed());
  drive_->Heal();
  EXPECT_TRUE(WaitUntil([&] { return !Closed(); }));
}

TEST_F(SpillClosedTest, CapacityOfAClosedDirectoryIsWaitedFor) {
  SpillStoreOptions options = Options();
  options.retry_time = milliseconds(20);
  os::WaitList waits;
  options.waits = &waits;
  Open(options);
  CloseByErrors();
  absl::Status grown = absl::UnknownError("not ended");
  std::thread grower([&] { grown = store_->GrowTo(12 * kMiB); });
  const auto named = [&] {
    for (const os::WaitList::Entry& entry : waits.UnderWay()) {
      if (entry.subject.find(directory_.path()) != std::string::npos &&
          entry.subject.find("errno 5") != std::string::npos)
        return true;
    }
    return false;
  };
  EXPECT_TRUE(WaitUntil(named)) << "a wait that names directory and cause";
  drive_->Heal();
  grower.join();
  EXPECT_TRUE(grown.ok()) << grown;
  store_.reset();  // before the list of waits
}

TEST_F(SpillClosedTest, TheWaitForAClosedDirectoryEndsAtTheUsersLimit) {
  SpillStoreOptions options = Options();
  options.retry_time = milliseconds(20);
  os::WaitList waits(
      os::Clock::System(), [](const std::string&) {}, milliseconds(200));
  options.waits = &waits;
  Open(options);
  CloseByErrors();
  const absl::Status grown = store_->GrowTo(12 * kMiB);
  EXPECT_TRUE(absl::IsDeadlineExceeded(grown)) << grown;
  store_.reset();
}

TEST_F(SpillClosedTest, ASilentDriveClosesItsDirectoryUntilItAnswers) {
  testing::internal::CaptureStderr();
  Open(Options());
  drive_->Set(IoOp::kRead, Drive::kHolds);
  drive_->Set(IoOp::kWrite, Drive::kHolds);
  Waiter reads;
  store_->Read(good_[0], back_.data(), kSlotBytes, Priority::kDemand, reads.Expect());
  const SlotId slot = Reserve(store_.get(), 1)[0];
  EXPECT_TRUE(absl::IsDeadlineExceeded(WriteSync(store_.get(), slot, data_.data(), kSlotBytes)));
  store_->ReleaseSlot(slot);
  EXPECT_EQ(store_->stats().directories[0].slots_quarantined, 1u) << "a late write may still land there";
  EXPECT_TRUE(Closed());
  EXPECT_EQ(store_->capacity_bytes(), 0u);
  EXPECT_TRUE(absl::IsUnavailable(store_->TakeSlots(1).status()));
  drive_->Heal();
  EXPECT_TRUE(reads.WaitAll()[0].ok());
  EXPECT_EQ(std::memcmp(back_.data(), data_.data(), kSlotBytes), 0);
  ASSERT_TRUE(WaitUntil([&] { return !Closed(); }));
  EXPECT_EQ(store_->stats().directories[0].last_closure, "does not answer");
  EXPECT_TRUE(WaitUntil([&] { return store_->stats().directories[0].slots_quarantined == 0; }));
  EXPECT_TRUE(store_->ReserveSlots(1).ok());
  ExpectGoodSlotsReadBack();
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("does not answer and gets no new spill slots until it does"));
  EXPECT_THAT(lines, HasSubstr("answers again"));
}

// Whoever counts free slots and then takes them finds the same directories usable.
TEST_F(SpillClosedTest, SlotsAreTakenWhileADriveFallsSilentAndAnswers) {
  SpillStoreOptions options = Options();
  options.request_timeout = milliseconds(20);
  store_ = MakeStore(options);
  good_ = Reserve(store_.get(), 1);
  // Given up where the machine is busy.
  ASSERT_TRUE(WaitUntil([&] { return WriteSync(store_.get(), good_[0], data_.data(), kPageBytes).ok(); }));
  std::atomic<bool> ended{false};
  std::thread taker([&] {
    while (!ended) {
      const absl::StatusOr<std::vector<SlotId>> taken = store_->TakeSlots(2);
      if (!taken.ok()) continue;
      for (const SlotId slot : *taken) store_->ReleaseSlot(slot);
    }
  });
  for (int i = 0; i < 60; ++i) {
    drive_->Set(IoOp::kRead, Drive::kHolds);
    Waiter read;
    store_->Read(good_[0], back_.data(), kPageBytes, Priority::kDemand, read.Expect());
    EXPECT_TRUE(WaitUntil([&] { return Closed(); }));
    drive_->Heal();
    EXPECT_EQ(read.WaitAll()[0], absl::OkStatus());
  }
  ended = true;
  taker.join();
}

TEST_F(SpillClosedTest, ReadsOfGoodSlotsGetPastWritesThatAreSwallowed) {
  Open(Options());
  const std::vector<SlotId> slots = Reserve(store_.get(), 8);
  drive_->Set(IoOp::kWrite, Drive::kSwallows);
  Waiter writes;
  for (const SlotId slot : slots) store_->Write(slot, data_.data(), kSlotBytes, writes.Expect());
  ASSERT_TRUE(WaitUntil([&] { return drive_->touched(IoOp::kWrite) >= 12; }));
  ExpectGoodSlotsReadBack();
  writes.WaitAll();
  ExpectGoodSlotsReadBack();
}

}  // namespace
}  // namespace spillway::io
