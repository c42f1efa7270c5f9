#include "io/store/slot_table.h"

#include <gtest/gtest.h>

#include <optional>

namespace spillway::io {
namespace {

TEST(SlotTableTest, KnowsWhatASlotHoldsAndForgetsItWhenItShould) {
  SlotTable table;
  table.Grow(2);
  const uint32_t slot = table.Allocate().value();
  EXPECT_EQ(table.awaiting_write(), 1u);
  EXPECT_FALSE(table.BeginRead(slot).has_value());
  const uint32_t first = table.BeginWrite(slot, 4096);
  EXPECT_EQ(table.awaiting_write(), 0u);
  table.EndWrite(slot, WriteOutcome::kWritten, Checksum{1, 2});
  const std::optional<SlotTable::Contents> contents = table.BeginRead(slot);
  ASSERT_TRUE(contents.has_value());
  EXPECT_EQ(contents->bytes, 4096u);
  EXPECT_EQ(contents->generation, first);
  EXPECT_EQ(contents->checksum, (Checksum{1, 2}));
  table.EndRead(slot);
  const uint32_t second = table.BeginWrite(slot, 8192);
  EXPECT_GT(second, first);
  table.EndWrite(slot, WriteOutcome::kFailed, Checksum{});
  EXPECT_FALSE(table.BeginRead(slot).has_value());
  table.Release(slot);
  ASSERT_EQ(table.Allocate(), slot);
  EXPECT_FALSE(table.BeginRead(slot).has_value());
  EXPECT_GT(table.BeginWrite(slot, 4096), second);
  table.EndWrite(slot, WriteOutcome::kSuspect, Checksum{});
  table.Release(slot);
  EXPECT_EQ(table.slots().quarantined_count(), 1u);
}

// A table whose only slot has had a write with this outcome and was given back.
SlotTable AfterWrite(WriteOutcome outcome) {
  SlotTable table;
  table.Grow(1);
  table.Allocate();
  table.BeginWrite(0, 4096);
  table.EndWrite(0, outcome, Checksum{});
  table.Release(0);
  return table;
}

TEST(SlotTableTest, ASuspectSlotServesTheProbeAndIsTrustedAfterwards) {
  SlotTable table = AfterWrite(WriteOutcome::kSuspect);
  EXPECT_EQ(table.Allocate(), std::nullopt);
  table.Answered(0);
  EXPECT_EQ(table.Allocate(), std::nullopt) << "an answer proves nothing about the place";
  ASSERT_EQ(table.AllocateForProbe(), 0u);
  table.BeginWrite(0, 4096);
  table.EndWrite(0, WriteOutcome::kSuspect, Checksum{});
  table.Release(0);
  EXPECT_EQ(table.slots().quarantined_count(), 1u) << "the probe failed";
  table.Trust();
  EXPECT_EQ(table.Allocate(), 0u);
}

TEST(SlotTableTest, ASlotWithAWriteUnderWayIsOutOfUseUntilItIsAnswered) {
  SlotTable table = AfterWrite(WriteOutcome::kUnanswered);
  table.Trust();
  EXPECT_EQ(table.AllocateForProbe(), std::nullopt);
  table.Answered(0);
  EXPECT_EQ(table.Allocate(), 0u);
}

TEST(SlotTableTest, AnAnswerBeforeTheSlotIsGivenBackLeavesItInUse) {
  SlotTable table;
  table.Grow(1);
  table.Allocate();
  table.BeginWrite(0, 4096);
  table.EndWrite(0, WriteOutcome::kUnanswered, Checksum{});
  table.Answered(0);
  EXPECT_EQ(table.slots().in_use_count(), 1u);
  table.Release(0);
  EXPECT_EQ(table.Allocate(), 0u);
}

// A table with one slot that has contents.
SlotTable WithContents() {
  SlotTable table;
  table.Grow(1);
  table.Allocate();
  table.BeginWrite(0, 4096);
  table.EndWrite(0, WriteOutcome::kWritten, Checksum{});
  return table;
}

TEST(SlotTableTest, ContentsThatHaveMovedLieElsewhere) {
  SlotTable table = WithContents();
  ASSERT_EQ(table.NextToMove(0), 0u);
  EXPECT_EQ(table.NextToMove(1), std::nullopt);
  const SlotTable::Contents contents = table.BeginMove(0);
  EXPECT_EQ(table.NextToMove(0), std::nullopt) << "it is on its way";
  table.EndRead(0);
  ASSERT_TRUE(table.EndMove(0, contents));
  table.SetMoved(0, {.directory = 1, .index = 7});
  ASSERT_TRUE(table.MovedTo(0).has_value());
  EXPECT_EQ(table.MovedTo(0)->index, 7u);
  EXPECT_EQ(table.moved_count(), 1u);
  EXPECT_FALSE(table.ChangedWhileMoving(0, contents)) << "reads that began here before are judged as ever";
  EXPECT_EQ(table.BeginRead(0), std::nullopt) << "not here";
  EXPECT_EQ(table.NextToMove(0), std::nullopt);
  table.Release(0);
  EXPECT_EQ(table.moved_count(), 0u);
  EXPECT_EQ(table.Allocate(), 0u);
  EXPECT_FALSE(table.MovedTo(0).has_value());
}

TEST(SlotTableTest, ASlotGivenBackWhileItMovesIsFreeAtTheEndOfTheMove) {
  SlotTable table = WithContents();
  const SlotTable::Contents contents = table.BeginMove(0);
  table.Release(0);
  EXPECT_TRUE(table.ChangedWhileMoving(0, contents));
  EXPECT_EQ(table.Allocate(), std::nullopt);
  table.EndRead(0);
  EXPECT_FALSE(table.EndMove(0, contents));
  EXPECT_EQ(table.Allocate(), 0u);
}

TEST(SlotTableTest, ASlotWrittenWhileItMovesKeepsItsNewContents) {
  SlotTable table = WithContents();
  const SlotTable::Contents contents = table.BeginMove(0);
  EXPECT_FALSE(table.ChangedWhileMoving(0, contents));
  const uint32_t generation = table.BeginWrite(0, 8192);
  EXPECT_TRUE(table.ChangedWhileMoving(0, contents));
  EXPECT_FALSE(table.EndMove(0, contents)) << "the write is under way";
  table.EndWrite(0, WriteOutcome::kWritten, Checksum{});
  table.EndRead(0);
  ASSERT_TRUE(table.BeginRead(0).has_value());
  table.EndRead(0);
  EXPECT_EQ(table.BeginMove(0).generation, generation);
}

TEST(SlotTableDeathTest, RefusesASecondMoveAndASecondRelease) {
  SlotTable table = WithContents();
  table.BeginMove(0);
  EXPECT_DEATH(table.BeginMove(0), "CHECK failed");
  table.Release(0);
  EXPECT_DEATH(table.Release(0), "CHECK failed");
}

TEST(SlotTableDeathTest, RefusesOverlappingUse) {
  const auto busy = [](bool writing) {
    SlotTable table;
    table.Grow(1);
    table.Allocate();
    table.BeginWrite(0, 4096);
    if (!writing) {
      table.EndWrite(0, WriteOutcome::kWritten, Checksum{});
      table.BeginRead(0);
    }
    return table;
  };
  EXPECT_DEATH(busy(true).BeginWrite(0, 4096), "CHECK failed");
  EXPECT_DEATH(busy(true).BeginRead(0), "CHECK failed");
  EXPECT_DEATH(busy(true).Release(0), "CHECK failed");
  EXPECT_DEATH(busy(false).BeginWrite(0, 4096), "CHECK failed");
  EXPECT_DEATH(busy(false).Release(0), "CHECK failed");
  SlotTable unanswered = busy(true);
  unanswered.EndWrite(0, WriteOutcome::kUnanswered, Checksum{});
  EXPECT_DEATH(unanswered.BeginWrite(0, 4096), "CHECK failed");
}

}  // namespace
}  // namespace spillway::io
