// A directory that stays closed: what lies there moves to another one, and its owner does not notice.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "io/store/spill_store.h"
#include "tests/fakes/drive_engine.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using tests::WaitUntil;

constexpr size_t kSlots = 6;

// The first drive is the one that fails.
class SpillMovesTest : public ::testing::Test {
 protected:
  SpillMovesTest() : data_(kSlotBytes), back_(kSlotBytes) {}

  void Open(uint64_t cap_of_second, milliseconds moves_after = milliseconds(50)) {
    SpillStoreOptions options = SmallOptions(paths_[0].path());
    options.directories = {{.path = paths_[0].path(), .cap_bytes = 64 * kSlotBytes},
                           {.path = paths_[1].path(), .cap_bytes = cap_of_second}};
    options.request_timeout = std::chrono::seconds(30);  // a read that is held is no silence here
    options.retry_time = milliseconds(20);
    options.first_probe = milliseconds(20);
    options.errors_until_closed = 1;
    options.moves_after = moves_after;
    options.wrap_engine = [this](std::unique_ptr<IoEngine> inner, size_t directory) {
      return std::make_unique<DriveEngine>(drives_[directory], std::move(inner));
    };
    store_ = MakeStore(options);
  }
  // Slots of the first directory, each with a pattern of its own; then writes fail there until it is closed.
  void FillAndClose() {
    std::vector<SlotId> others;
    while (slots_.size() < kSlots) {
      const SlotId slot = Reserve(store_.get(), 1)[0];
      (slot.directory == 0 ? slots_ : others).push_back(slot);
    }
    for (size_t i = 0; i < kSlots; ++i) Fill(slots_[i], i);
    for (const SlotId slot : others) store_->ReleaseSlot(slot);
    Close(0);
  }
  // Writes fail there until the directory is closed. With all of its slots in use there is none to probe it
  // by, and it opens at once.
  void Close(size_t directory) {
    drives_[directory]->Set(IoOp::kWrite, EIO);
    ASSERT_TRUE(WaitUntil([&] {
      WriteTo(directory);
      return stats(directory).closed;
    }));
  }
  // Takes slots until some are that directory's: the other file alone may have as many as are free. Writes
  // them all, and gives them back.
  void WriteTo(size_t directory) {
    std::vector<SlotId> taken;
    bool there = false;
    while (!there) {
      const absl::StatusOr<std::vector<SlotId>> more = store_->TakeSlots(16);
      if (!more.ok()) break;  // the files are being grown, or it is closed
      taken.insert(taken.end(), more->begin(), more->end());
      there = std::ranges::any_of(*more, [&](SlotId slot) { return slot.directory == directory; });
    }
    Waiter waiter;
    for (const SlotId slot : taken) store_->Write(slot, data_.data(), kSlotBytes, waiter.Expect());
    waiter.WaitAll();
    for (const SlotId slot : taken) store_->ReleaseSlot(slot);
  }
  void Fill(SlotId slot, uint64_t pattern) {
    FillPattern(data_.data(), kSlotBytes, pattern);
    ASSERT_TRUE(WriteSync(store_.get(), slot, data_.data(), kSlotBytes).ok());
  }
  void ExpectFilled(SlotId slot, uint64_t pattern) {
    std::memset(back_.data(), 0, kSlotBytes);
    const absl::Status status = ReadSync(store_.get(), slot, back_.data(), kSlotBytes);
    EXPECT_TRUE(status.ok()) << status;
    FillPattern(data_.data(), kSlotBytes, pattern);
    EXPECT_EQ(std::memcmp(back_.data(), data_.data(), kSlotBytes), 0) << pattern;
  }
  DirectoryStats stats(size_t directory) const { return store_->stats().directories[directory]; }
  bool AllMoved() const { return stats(0).slots_moved == kSlots; }

  std::array<TestDirectory, 2> paths_;
  std::array<std::shared_ptr<Drive>, 2> drives_ = {std::make_shared<Drive>(), std::make_shared<Drive>()};
  AlignedBuffer data_;
  AlignedBuffer back_;
  std::vector<SlotId> slots_;
  std::unique_ptr<SpillStore> store_;
};

TEST_F(SpillMovesTest, BytesMoveAndAreReadWithoutTheDriveThatFailed) {
  testing::internal::CaptureStderr();
  Open(64 * kSlotBytes);
  FillAndClose();
  ASSERT_TRUE(WaitUntil([&] { return AllMoved(); })) << stats(0).slots_moved;
  EXPECT_EQ(stats(1).slots_in_use, kSlots);
  drives_[0]->Set(IoOp::kRead, Drive::kHolds);  // it is not asked any more
  for (size_t i = 0; i < kSlots; ++i) ExpectFilled(slots_[i], i);
  Fill(slots_[0], 100);  // a write goes where the bytes lie
  ExpectFilled(slots_[0], 100);
  drives_[0]->Heal();
  ASSERT_TRUE(WaitUntil([&] { return !stats(0).closed; }));
  // The owner's slots are nobody else's before they are given back.
  const uint64_t capacity = store_->capacity_bytes();
  for (const SlotId slot : slots_) store_->ReleaseSlot(slot);
  EXPECT_EQ(store_->stats().slots_in_use, 0u);
  EXPECT_EQ(store_->capacity_bytes(), capacity + kSlots * kSlotBytes);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("its bytes move to other directories"));
}

TEST_F(SpillMovesTest, NothingMovesBeforeTheTime) {
  Open(64 * kSlotBytes, std::chrono::hours(1));
  FillAndClose();
  const int closed = drives_[0]->touched(IoOp::kWrite);
  ASSERT_TRUE(WaitUntil([&] { return drives_[0]->touched(IoOp::kWrite) > closed + 3; })) << "probes go on";
  EXPECT_EQ(stats(0).slots_moved, 0u);
}

TEST_F(SpillMovesTest, ASlotThatIsGivenBackMeanwhileIsFree) {
  Open(64 * kSlotBytes);
  drives_[0]->Set(IoOp::kRead, Drive::kHolds);
  FillAndClose();
  ASSERT_TRUE(WaitUntil([&] { return drives_[0]->touched(IoOp::kRead) > 0; })) << "a move has begun";
  for (const SlotId slot : slots_) store_->ReleaseSlot(slot);
  drives_[0]->Heal();
  EXPECT_TRUE(WaitUntil([&] { return store_->stats().slots_in_use == 0; }));
}

TEST_F(SpillMovesTest, ASlotThatIsWrittenMeanwhileStays) {
  Open(64 * kSlotBytes);
  drives_[0]->Set(IoOp::kRead, Drive::kHolds);
  FillAndClose();
  ASSERT_TRUE(WaitUntil([&] { return drives_[0]->touched(IoOp::kRead) > 0; })) << "a move has begun";
  drives_[0]->Set(IoOp::kWrite, Drive::kWell);
  for (size_t i = 0; i < kSlots; ++i) Fill(slots_[i], 100 + i);
  drives_[0]->Heal();
  for (size_t i = 0; i < kSlots; ++i) ExpectFilled(slots_[i], 100 + i);
  ASSERT_TRUE(WaitUntil([&] { return !stats(0).closed; }));
  for (size_t i = 0; i < kSlots; ++i) ExpectFilled(slots_[i], 100 + i);
  EXPECT_EQ(stats(0).checksum_mismatches, 0u) << "what the move has read was new, not wrong";
}

TEST_F(SpillMovesTest, WhatCannotBeReadStaysUntilItCan) {
  Open(64 * kSlotBytes);
  drives_[0]->Set(IoOp::kRead, EIO);
  FillAndClose();
  ASSERT_TRUE(WaitUntil([&] { return drives_[0]->touched(IoOp::kRead) >= 2 * static_cast<int>(kSlots); }))
      << "each is tried again";
  EXPECT_EQ(stats(0).slots_moved, 0u);
  drives_[0]->Set(IoOp::kRead, Drive::kWell);
  EXPECT_TRUE(WaitUntil([&] { return AllMoved(); }));
  for (size_t i = 0; i < kSlots; ++i) ExpectFilled(slots_[i], i);
}

TEST_F(SpillMovesTest, NoPromiseIsBrokenForAMove) {
  Open(64 * kSlotBytes);
  FillAndClose();
  // All that the other directory can have is promised, and what lies in the closed one.
  PromisedCapacity owner((64 + kSlots) * kSlotBytes);
  store_->SetOwner(&owner);
  const uint64_t before = stats(0).slots_moved;
  const int probes = drives_[0]->touched(IoOp::kWrite);
  ASSERT_TRUE(WaitUntil([&] { return drives_[0]->touched(IoOp::kWrite) > probes + 1; }));
  EXPECT_LE(stats(0).slots_moved, before + 1) << "one may have been under way";
  owner.promised_bytes = 32 * kSlotBytes;
  EXPECT_TRUE(WaitUntil([&] { return AllMoved(); }));
  store_->SetOwner(nullptr);
}

TEST_F(SpillMovesTest, ChainsOfMovesAreFollowed) {
  Open(64 * kSlotBytes);
  FillAndClose();
  ASSERT_TRUE(WaitUntil([&] { return AllMoved(); }));
  drives_[0]->Heal();
  ASSERT_TRUE(WaitUntil([&] { return !stats(0).closed; }));
  Close(1);
  ASSERT_TRUE(WaitUntil([&] { return stats(1).slots_moved == kSlots; }));
  for (size_t i = 0; i < kSlots; ++i) ExpectFilled(slots_[i], i);
  for (const SlotId slot : slots_) store_->ReleaseSlot(slot);
  EXPECT_EQ(store_->stats().slots_in_use, 0u);
}

}  // namespace
}  // namespace spillway::io
