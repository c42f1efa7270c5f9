// SpillStore over real files: what goes in comes out, slots are reused, space is bounded, wrong use is
// refused.

#include "io/store/spill_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <set>

#include "io/engine/aligned_buffer.h"
#include "io/os/sync.h"
#include "tests/fakes/drive_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using ::testing::HasSubstr;

class SpillStoreTest : public ::testing::TestWithParam<EngineKind> {
 protected:
  SpillStoreOptions Options() {
    SpillStoreOptions options = SmallOptions(directory_.path());
    options.engine = GetParam();
    return options;
  }

  TestDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(Engines, SpillStoreTest, ::testing::Values(EngineKind::kThreads, EngineKind::kUring),
                         [](const auto& tested) {
                           return tested.param == EngineKind::kThreads ? "Threads" : "Uring";
                         });

TEST_P(SpillStoreTest, BringsBackWhatWasWritten) {
  std::unique_ptr<SpillStore> store = MakeStore(Options());
  const std::vector<SlotId> slots = Reserve(store.get(), 12);
  AlignedBuffer data(12 * kSlotBytes);
  for (size_t i = 0; i < slots.size(); ++i) FillPattern(data.data() + i * kSlotBytes, kSlotBytes, i + 1);
  Waiter writes;
  for (size_t i = 0; i < slots.size(); ++i) {
    store->Write(slots[i], data.data() + i * kSlotBytes, kSlotBytes, writes.Expect());
  }
  for (const absl::Status& status : writes.WaitAll()) EXPECT_TRUE(status.ok()) << status;
  AlignedBuffer back(12 * kSlotBytes);
  std::memset(back.data(), 0, back.size());
  Waiter reads;
  for (size_t i = 0; i < slots.size(); ++i) {
    store->Read(slots[i], back.data() + i * kSlotBytes, kSlotBytes,
                i % 2 == 0 ? Priority::kDemand : Priority::kPrefetch, reads.Expect());
  }
  for (const absl::Status& status : reads.WaitAll()) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(std::memcmp(data.data(), back.data(), data.size()), 0);
  const SpillStoreStats stats = store->stats();
  EXPECT_EQ(stats.bytes_written, 12u * kSlotBytes);
  EXPECT_EQ(stats.bytes_read, 12u * kSlotBytes);
  EXPECT_EQ(stats.slots_in_use, 12u);
  EXPECT_EQ(stats.errors, 0u);
}

TEST_P(SpillStoreTest, LeavesNoNameInTheDirectory) {
  std::unique_ptr<SpillStore> store = MakeStore(Options());
  ASSERT_TRUE(store->ReserveSlots(1).ok());
  EXPECT_TRUE(directory_.Empty());
}

TEST_P(SpillStoreTest, WritesAndReadsPartsOfASlot) {
  std::unique_ptr<SpillStore> store = MakeStore(Options());
  const SlotId slot = Reserve(store.get(), 1)[0];
  AlignedBuffer data(kSlotBytes);
  FillPattern(data.data(), kSlotBytes, 7);
  for (const uint32_t bytes :
       {kPageBytes, 3 * kPageBytes, 512u << 10, (512u << 10) + kPageBytes, kSlotBytes}) {
    ASSERT_TRUE(WriteSync(store.get(), slot, data.data(), bytes).ok());
    AlignedBuffer back(kSlotBytes);
    ASSERT_TRUE(ReadSync(store.get(), slot, back.data(), bytes).ok());
    EXPECT_EQ(std::memcmp(data.data(), back.data(), bytes), 0) << bytes;
  }
}

TEST_P(SpillStoreTest, RefusesToReadWhatIsNotThere) {
  std::unique_ptr<SpillStore> store = MakeStore(Options());
  const SlotId slot = Reserve(store.get(), 1)[0];
  AlignedBuffer data(kSlotBytes);
  FillPattern(data.data(), kSlotBytes, 7);
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadSync(store.get(), slot, data.data(), kPageBytes)));
  ASSERT_TRUE(WriteSync(store.get(), slot, data.data(), 2 * kPageBytes).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadSync(store.get(), slot, data.data(), kPageBytes)));
  store->ReleaseSlot(slot);
  ASSERT_EQ(Reserve(store.get(), 1)[0], slot);  // last in, first out
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadSync(store.get(), slot, data.data(), 2 * kPageBytes)));
}

// One request at a time. The drive holds the first until all are there. The order on the drive is compared:
// several threads report the ends.
class SpillStoreOrderTest : public ::testing::Test {
 protected:
  static constexpr size_t kSlots = 4;

  SpillStoreOrderTest() : data_(kSlotBytes) {
    SpillStoreOptions options = SmallOptions(directory_.path());
    options.requests_in_flight = 1;
    options.request_bytes = kSlotBytes;
    options.wrap_engine = [this](std::unique_ptr<IoEngine>, size_t) {
      MemoryEngineOptions memory;
      memory.capacity = 1;
      memory.on_submit = [this](const IoRequest& request) { Record(request); };
      return std::make_unique<DriveEngine>(drive_, MakeMemoryEngine(memory));
    };
    store_ = MakeStore(std::move(options));
    slots_ = Reserve(store_.get(), kSlots);
    FillPattern(data_.data(), kSlotBytes, 1);
    for (const SlotId slot : slots_)
      EXPECT_TRUE(WriteSync(store_.get(), slot, data_.data(), kPageBytes).ok());
    for (size_t i = 0; i < kSlots; ++i) back_.push_back(std::make_unique<AlignedBuffer>(kPageBytes));
  }

  void Read(size_t i, Priority priority) {
    store_->Read(slots_[i], back_[i]->data(), kPageBytes, priority, waiter_.Expect());
  }

  void ReadOnBusyDisk(size_t i) {
    drive_->Set(IoOp::kRead, Drive::kHolds);
    Read(i, Priority::kDemand);
    ASSERT_TRUE(tests::WaitUntil([&] { return drive_->touched(IoOp::kRead) == 1; }));
  }

  void Record(const IoRequest& request) {
    os::MutexLock lock(&mu_);
    const auto read =
        std::ranges::find(back_, request.buffer, [](const auto& buffer) { return buffer->data(); });
    if (read != back_.end()) order_.push_back(static_cast<size_t>(read - back_.begin()));
  }

  std::vector<size_t> Order() {
    os::MutexLock lock(&mu_);
    return order_;
  }

  const std::shared_ptr<Drive> drive_ = std::make_shared<Drive>();
  TestDirectory directory_;
  AlignedBuffer data_;
  std::vector<std::unique_ptr<AlignedBuffer>> back_;
  std::vector<SlotId> slots_;
  Waiter waiter_;
  os::Mutex mu_{os::LockRank::kRuntime};
  std::vector<size_t> order_ ABSL_GUARDED_BY(mu_);  // of the reads on the disk, by place
  std::unique_ptr<SpillStore> store_;               // last: its callbacks use the above
};

TEST_F(SpillStoreOrderTest, DemandGoesFirstAndPromotedReadsFollowIt) {
  ReadOnBusyDisk(0);
  Read(1, Priority::kPrefetch);
  Read(2, Priority::kPrefetch);
  Read(3, Priority::kDemand);
  store_->Promote(slots_[2]);
  drive_->Heal();
  waiter_.WaitAll();
  EXPECT_EQ(Order(), (std::vector<size_t>{0, 3, 2, 1}));
}

TEST_F(SpillStoreOrderTest, CancelsPrefetchReadsThatHaveNotBegun) {
  ReadOnBusyDisk(0);
  Read(1, Priority::kPrefetch);
  Read(2, Priority::kPrefetch);
  Read(3, Priority::kDemand);
  store_->CancelPrefetch(slots_[1]);
  store_->CancelPrefetch(slots_[3]);  // a demand read: goes on
  drive_->Heal();
  const std::vector<absl::Status> statuses = waiter_.WaitAll();
  EXPECT_TRUE(absl::IsCancelled(statuses[1])) << statuses[1];
  EXPECT_EQ(Order(), (std::vector<size_t>{0, 3, 2}));
  EXPECT_TRUE(ReadSync(store_.get(), slots_[1], back_[1]->data(), kPageBytes).ok());
  EXPECT_EQ(store_->stats().errors, 0u);
}

}  // namespace
}  // namespace spillway::io
