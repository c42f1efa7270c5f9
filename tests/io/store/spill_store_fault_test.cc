// SpillStore over engines that fail by plan: every error reaches the caller with its place, or is repaired;
// damaged, misplaced and lost bytes are found; nothing stays pending for ever.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cerrno>
#include <cstring>

#include "io/engine/aligned_buffer.h"
#include "io/store/spill_store.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using ::testing::HasSubstr;

class SpillStoreFaultTest : public ::testing::Test {
 protected:
  SpillStoreFaultTest() : data_(kSlotBytes), back_(kSlotBytes) {
    FillPattern(data_.data(), kSlotBytes, 1);
    std::memset(back_.data(), 0, kSlotBytes);
  }

  std::unique_ptr<SpillStore> StoreWith(std::vector<Fault> faults,
                                        ChecksumMode checksum = ChecksumMode::kOn) {
    FaultPlan plan;
    plan.faults = std::move(faults);
    SpillStoreOptions options = SmallOptions(directory_.path());
    options.checksum = checksum;
    options.request_timeout = std::chrono::milliseconds(300);
    options.retry_time = std::chrono::milliseconds(100);
    // In memory: a file on a busy machine may be silent for longer than that.
    options.wrap_engine = [this, plan](std::unique_ptr<IoEngine> inner, size_t) {
      return MakeFaultyEngine(MakeMemoryEngine({.capacity = inner->capacity()}), plan, counters_);
    };
    std::unique_ptr<SpillStore> store = MakeStore(std::move(options));
    slot_ = Reserve(store.get(), 1)[0];
    return store;
  }

  bool Same() const { return std::memcmp(data_.data(), back_.data(), kSlotBytes) == 0; }

  // The usual end of a test whose fault should have been repaired.
  void ExpectRepaired(SpillStore* store) {
    const absl::Status wrote = WriteSync(store, slot_, data_.data(), kSlotBytes);
    EXPECT_TRUE(wrote.ok()) << wrote;
    const absl::Status read = ReadSync(store, slot_, back_.data(), kSlotBytes);
    EXPECT_TRUE(read.ok()) << read;
    EXPECT_TRUE(Same());
    EXPECT_GT(counters_->injected.load(), 0u);
  }

  TestDirectory directory_;
  AlignedBuffer data_;
  AlignedBuffer back_;
  SlotId slot_;
  std::shared_ptr<FaultCounters> counters_ = std::make_shared<FaultCounters>();
};

Fault ErrnoFault(IoOp op, int error, uint64_t first, uint64_t count) {
  Fault fault;
  fault.op = op;
  fault.error = error;
  fault.first = first;
  fault.count = count;
  return fault;
}

Fault KindFault(FaultKind kind, IoOp op, uint64_t first, uint64_t count = 1) {
  Fault fault;
  fault.kind = kind;
  fault.op = op;
  fault.first = first;
  fault.count = count;
  return fault;
}

TEST_F(SpillStoreFaultTest, RepeatsAWriteThatFailedOnce) {
  auto store = StoreWith({ErrnoFault(IoOp::kWrite, EIO, 2, 1)});
  ExpectRepaired(store.get());
  EXPECT_EQ(store->stats().retries, 1u);
  EXPECT_EQ(store->stats().errors, 0u);
}

TEST_F(SpillStoreFaultTest, RepeatsAReadThatFailedOnce) {
  auto store = StoreWith({ErrnoFault(IoOp::kRead, EIO, 3, 1)});
  ExpectRepaired(store.get());
}

TEST_F(SpillStoreFaultTest, GoesOnAfterInterruptions) {
  auto store = StoreWith({ErrnoFault(IoOp::kWrite, EINTR, 1, 8), ErrnoFault(IoOp::kWrite, EAGAIN, 9, 8),
                          ErrnoFault(IoOp::kRead, EAGAIN, 1, 8)});
  ExpectRepaired(store.get());
  EXPECT_GE(store->stats().retries, 20u);
}

TEST_F(SpillStoreFaultTest, EndlessInterruptionsBecomeAnError) {
  auto store = StoreWith({ErrnoFault(IoOp::kWrite, EAGAIN, 1, UINT64_MAX)});
  const absl::Status status = WriteSync(store.get(), slot_, data_.data(), kPageBytes);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(SpillStoreFaultTest, AKernelWithoutMemoryIsNotAFullDisk) {
  auto store = StoreWith({ErrnoFault(IoOp::kWrite, ENOMEM, 1, UINT64_MAX)});
  const absl::Status status = WriteSync(store.get(), slot_, data_.data(), kPageBytes);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_FALSE(store->stats().directories[0].full);
  EXPECT_TRUE(store->ReserveSlots(1).ok());
}

TEST_F(SpillStoreFaultTest, ContinuesShortTransfers) {
  Fault write = KindFault(FaultKind::kShort, IoOp::kWrite, 1, 5);
  write.short_bytes = 3 * kPageBytes + 100;  // not at a page boundary
  Fault read = KindFault(FaultKind::kShort, IoOp::kRead, 2, 5);
  read.short_bytes = kPageBytes;
  auto store = StoreWith({write, read});
  ExpectRepaired(store.get());
  EXPECT_EQ(store->stats().retries, 10u);
}

TEST_F(SpillStoreFaultTest, AReadThatEndsEarlyIsAnError) {
  auto store = StoreWith({KindFault(FaultKind::kShort, IoOp::kRead, 1, 32)});
  ASSERT_TRUE(WriteSync(store.get(), slot_, data_.data(), kSlotBytes).ok());
  EXPECT_FALSE(ReadSync(store.get(), slot_, back_.data(), kSlotBytes).ok());
  // The bytes are still there: with the disk well again, the next read has them.
  EXPECT_TRUE(ReadSync(store.get(), slot_, back_.data(), kSlotBytes).ok());
  EXPECT_TRUE(Same());
}

TEST_F(SpillStoreFaultTest, AWriteErrorNamesItsPlaceAndTheSlotHoldsNothing) {
  auto store = StoreWith({ErrnoFault(IoOp::kWrite, EIO, 1, UINT64_MAX)});
  const absl::Status status = WriteSync(store.get(), slot_, data_.data(), kSlotBytes);
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_.path()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("write of 2097152 bytes at offset 0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("errno 5"));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadSync(store.get(), slot_, back_.data(), kSlotBytes)));
  EXPECT_EQ(store->stats().errors, 1u);
  store->ReleaseSlot(slot_);
  EXPECT_EQ(store->stats().directories[0].slots_quarantined, 1u);
  for (const SlotId slot : Reserve(store.get(), 15)) EXPECT_FALSE(slot == slot_);
}

TEST_F(SpillStoreFaultTest, ABadPlaceIsAnErrorOfItsReadAlone) {
  auto store = StoreWith({ErrnoFault(IoOp::kRead, ENODATA, 1, 32)});
  ASSERT_TRUE(WriteSync(store.get(), slot_, data_.data(), kSlotBytes).ok());
  const absl::Status status = ReadSync(store.get(), slot_, back_.data(), kSlotBytes);
  EXPECT_THAT(std::string(status.message()), HasSubstr("read of 2097152 bytes at offset 0"));
  EXPECT_FALSE(store->stats().directories[0].closed);
  ASSERT_TRUE(ReadSync(store.get(), slot_, back_.data(), kSlotBytes).ok());
  EXPECT_TRUE(Same());
}

TEST_F(SpillStoreFaultTest, AFullDiskIsResourceExhaustedAtOnceAndClosesTheDirectory) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    auto store = StoreWith({ErrnoFault(IoOp::kWrite, error, 1, 1)});
    const absl::Status status = WriteSync(store.get(), slot_, data_.data(), kPageBytes);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_TRUE(store->stats().directories[0].full);
    const absl::Status reserve = store->ReserveSlots(1).status();
    EXPECT_TRUE(absl::IsResourceExhausted(reserve)) << reserve;
    EXPECT_THAT(std::string(reserve.message()), HasSubstr("full disk"));
    EXPECT_EQ(store->space().free_bytes, 0u);
    counters_ = std::make_shared<FaultCounters>();
  }
}

TEST_F(SpillStoreFaultTest, ABitFlippedOnTheWayBackIsReadAgain) {
  auto store = StoreWith({KindFault(FaultKind::kBitFlip, IoOp::kRead, 2)});
  ExpectRepaired(store.get());
  EXPECT_EQ(store->stats().checksum_mismatches, 1u);
}

TEST_F(SpillStoreFaultTest, ABitFlippedOnTheDiskIsDataLoss) {
  auto store = StoreWith({KindFault(FaultKind::kBitFlip, IoOp::kWrite, 4)});
  ASSERT_TRUE(WriteSync(store.get(), slot_, data_.data(), kSlotBytes).ok());
  const absl::Status status = ReadSync(store.get(), slot_, back_.data(), kSlotBytes);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_.path()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("2097152 bytes at offset 0"));
  EXPECT_EQ(store->stats().checksum_mismatches, 2u);
}

TEST_F(SpillStoreFaultTest, WithoutChecksumsTheSameFlipGoesUnnoticed) {
  auto store = StoreWith({KindFault(FaultKind::kBitFlip, IoOp::kWrite, 4)}, ChecksumMode::kOff);
  ASSERT_TRUE(WriteSync(store.get(), slot_, data_.data(), kSlotBytes).ok());
  EXPECT_TRUE(ReadSync(store.get(), slot_, back_.data(), kSlotBytes).ok());
  EXPECT_FALSE(Same());
}

TEST_F(SpillStoreFaultTest, AWriteThatLandedInAnotherSlotIsFound) {
  // Two slots with the same bytes: only the seed tells that one's bytes are not the other's.
  Fault elsewhere = KindFault(FaultKind::kMisdirect, IoOp::kRead, 1, 100);
  elsewhere.misdirect = kSlotBytes;
  auto store = StoreWith({elsewhere});
  const SlotId next = Reserve(store.get(), 1)[0];
  ASSERT_EQ(next.index, slot_.index + 1);
  ASSERT_TRUE(WriteSync(store.get(), slot_, data_.data(), kSlotBytes).ok());
  AlignedBuffer other(kSlotBytes);
  FillPattern(other.data(), kSlotBytes, 2);
  ASSERT_TRUE(WriteSync(store.get(), next, other.data(), kSlotBytes).ok());
  EXPECT_TRUE(absl::IsDataLoss(ReadSync(store.get(), slot_, back_.data(), kSlotBytes)));
}

TEST_F(SpillStoreFaultTest, AWriteThatNeverHappenedIsFound) {
  auto store = StoreWith({KindFault(FaultKind::kLost, IoOp::kWrite, 5, 4)});
  ASSERT_TRUE(WriteSync(store.get(), slot_, data_.data(), kSlotBytes).ok());
  store->ReleaseSlot(slot_);
  ASSERT_EQ(Reserve(store.get(), 1)[0], slot_);
  AlignedBuffer newer(kSlotBytes);
  FillPattern(newer.data(), kSlotBytes, 2);
  ASSERT_TRUE(WriteSync(store.get(), slot_, newer.data(), kSlotBytes).ok());
  EXPECT_TRUE(absl::IsDataLoss(ReadSync(store.get(), slot_, back_.data(), kSlotBytes)));
  EXPECT_TRUE(Same());  // the disk gave the older bytes, whole
}

TEST_F(SpillStoreFaultTest, ResultsThatClaimTooMuchOrComeTwiceDoNoHarm) {
  auto store = StoreWith({KindFault(FaultKind::kDuplicate, IoOp::kWrite, 1, 4),
                          KindFault(FaultKind::kDuplicate, IoOp::kRead, 1, 4),
                          KindFault(FaultKind::kTooLong, IoOp::kRead, 5, 1)});
  ExpectRepaired(store.get());
  EXPECT_TRUE(absl::IsInternal(ReadSync(store.get(), slot_, back_.data(), kSlotBytes)));
  EXPECT_TRUE(ReadSync(store.get(), slot_, back_.data(), kSlotBytes).ok());
}

TEST_F(SpillStoreFaultTest, ARequestThatNeverComesBackIsGivenUp) {
  auto store = StoreWith({KindFault(FaultKind::kNever, IoOp::kWrite, 2)});
  const absl::Status status = WriteSync(store.get(), slot_, data_.data(), kSlotBytes);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(store->stats().directories[0].closed);
  store->ReleaseSlot(slot_);
  EXPECT_EQ(store->stats().directories[0].slots_quarantined, 1u);  // a late write may still land there
}

TEST_F(SpillStoreFaultTest, WhenNothingComesBackWaitingTransfersEndToo) {
  auto store = StoreWith({KindFault(FaultKind::kNever, IoOp::kWrite, 1, UINT64_MAX)});
  const std::vector<SlotId> slots = Reserve(store.get(), 12);
  Waiter waiter;
  for (const SlotId slot : slots) store->Write(slot, data_.data(), kSlotBytes, waiter.Expect());
  for (const absl::Status& status : waiter.WaitAll()) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) << status;
  }
}

TEST_F(SpillStoreFaultTest, ShutdownDoesNotWaitForWhatNeverComesBack) {
  FaultPlan plan;
  plan.faults = {KindFault(FaultKind::kNever, IoOp::kWrite, 1, UINT64_MAX)};
  SpillStoreOptions options = SmallOptions(directory_.path());
  options.wrap_engine = [this, plan](std::unique_ptr<IoEngine> inner, size_t) {
    return MakeFaultyEngine(std::move(inner), plan, counters_);
  };
  std::unique_ptr<SpillStore> store = MakeStore(std::move(options));
  Waiter waiter;
  for (const SlotId slot : Reserve(store.get(), 12)) {
    store->Write(slot, data_.data(), kSlotBytes, waiter.Expect());
  }
  ASSERT_TRUE(tests::WaitUntil(
      [&] { return counters_->injected.load() >= 12; }));  // all writes that may be in flight
  const auto start = std::chrono::steady_clock::now();
  store->Shutdown();
  // Less than the 30 s after which a request is given up.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  for (const absl::Status& status : waiter.WaitAll()) {
    EXPECT_TRUE(absl::IsCancelled(status) || absl::IsDeadlineExceeded(status)) << status;
  }
  Waiter after;
  store->Write(SlotId{0, 0}, data_.data(), kSlotBytes, after.Expect());
  EXPECT_TRUE(absl::IsCancelled(after.WaitAll()[0]));
  EXPECT_TRUE(absl::IsCancelled(store->ReserveSlots(1).status()));
}

// The default would have given them up by then.
TEST_F(SpillStoreFaultTest, ShutdownWaitsForLateWritesWithinItsTimeLimit) {
  Fault late = KindFault(FaultKind::kDelay, IoOp::kWrite, 1, UINT64_MAX);
  late.delay = std::chrono::milliseconds(1200);
  FaultPlan plan;
  plan.faults = {late};
  SpillStoreOptions options = SmallOptions(directory_.path());
  options.shutdown_timeout = tests::kPatience;
  options.wrap_engine = [this, plan](std::unique_ptr<IoEngine> inner, size_t) {
    return MakeFaultyEngine(MakeMemoryEngine({.capacity = inner->capacity()}), plan, counters_);
  };
  std::unique_ptr<SpillStore> store = MakeStore(std::move(options));
  const SlotId slot = Reserve(store.get(), 1)[0];
  Waiter waiter;
  store->Write(slot, data_.data(), kPageBytes, waiter.Expect());
  ASSERT_TRUE(tests::WaitUntil([&] { return counters_->injected.load() == 1; }));
  store->Shutdown();
  const absl::Status written = waiter.WaitAll()[0];
  EXPECT_TRUE(written.ok()) << written;
}

TEST_F(SpillStoreFaultTest, ADiskThatIsBusyAtTheEndIsNotOutOfUse) {
  testing::internal::CaptureStderr();
  SpillStoreOptions options = SmallOptions(directory_.path());
  options.wrap_engine = [this](std::unique_ptr<IoEngine>, size_t) {
    return MakeFaultyEngine(MakeMemoryEngine({.latency = std::chrono::seconds(30)}), {}, counters_);
  };
  std::unique_ptr<SpillStore> store = MakeStore(std::move(options));
  Waiter waiter;
  for (const SlotId slot : Reserve(store.get(), 12)) {
    store->Write(slot, data_.data(), kPageBytes, waiter.Expect());
  }
  ASSERT_TRUE(tests::WaitUntil([&] { return counters_->writes.load() == 12; }));
  store->Shutdown();
  waiter.WaitAll();
  EXPECT_FALSE(store->stats().directories[0].closed);
  EXPECT_EQ(store->stats().errors, 0u);
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines.find("no new spill slots"), std::string::npos) << lines;
  EXPECT_EQ(lines.find("get no new"), std::string::npos) << lines;
}

TEST_F(SpillStoreFaultTest, LateAndReorderedResultsBelongToTheirRequests) {
  FaultPlan plan;
  plan.reorder = true;
  plan.random_rate = 0.3;
  plan.seed = 17;
  SpillStoreOptions options = SmallOptions(directory_.path());
  options.request_bytes = 64u << 10;
  options.wrap_engine = [plan](std::unique_ptr<IoEngine>, size_t) {
    MemoryEngineOptions memory;
    memory.latency = std::chrono::microseconds(100);
    return MakeFaultyEngine(MakeMemoryEngine(memory), plan);
  };
  std::unique_ptr<SpillStore> store = MakeStore(std::move(options));
  for (int round = 0; round < 20; ++round) {
    FillPattern(data_.data(), kSlotBytes, static_cast<uint64_t>(round));
    const SlotId slot = Reserve(store.get(), 1)[0];
    while (!WriteSync(store.get(), slot, data_.data(), kSlotBytes).ok()) {
    }
    while (!ReadSync(store.get(), slot, back_.data(), kSlotBytes).ok()) {
    }
    ASSERT_TRUE(Same());
  }
  EXPECT_GT(store->stats().retries, 100u);
}

}  // namespace
}  // namespace spillway::io
