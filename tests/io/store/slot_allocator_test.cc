#include "io/store/slot_allocator.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace spillway::io {
namespace {

TEST(SlotAllocatorTest, HandsOutTheSlotGivenBackLastFirst) {
  SlotAllocator slots;
  EXPECT_FALSE(slots.Allocate().has_value());
  slots.Grow(4);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(slots.Allocate(), i);
  slots.Free(1);
  slots.Free(3);
  slots.Grow(2);
  EXPECT_EQ(slots.Allocate(), 3u);
  EXPECT_EQ(slots.Allocate(), 1u);
  EXPECT_EQ(slots.Allocate(), 4u);  // never used ones only then, the lowest first
  EXPECT_EQ(slots.Allocate(), 5u);
  EXPECT_FALSE(slots.Allocate().has_value());
}

TEST(SlotAllocatorTest, OnlyFreeSlotsAtTheEndCanBeTakenAway) {
  SlotAllocator slots;
  slots.Grow(6);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(slots.Allocate(), i);
  EXPECT_EQ(slots.free_tail(), 2u);
  slots.Free(3);
  slots.Free(1);
  EXPECT_EQ(slots.free_tail(), 3u);
  slots.Shrink(3);
  EXPECT_EQ(slots.size(), 3u);
  EXPECT_EQ(slots.free_count(), 1u);
  slots.CheckInvariants();
  slots.Quarantine(2);
  EXPECT_EQ(slots.free_tail(), 0u);
  slots.Grow(1);
  EXPECT_EQ(slots.Allocate(), 1u);
  EXPECT_EQ(slots.Allocate(), 3u);
  EXPECT_EQ(slots.Allocate(), std::nullopt);
  slots.CheckInvariants();
}

TEST(SlotAllocatorTest, QuarantinedSlotsStayAway) {
  SlotAllocator slots;
  slots.Grow(2);
  const uint32_t index = slots.Allocate().value();
  slots.Quarantine(index);
  EXPECT_EQ(slots.quarantined_count(), 1u);
  EXPECT_NE(slots.Allocate(), index);
  EXPECT_FALSE(slots.Allocate().has_value());
  slots.CheckInvariants();
  slots.Restore(index);
  EXPECT_EQ(slots.quarantined_count(), 0u);
  slots.CheckInvariants();
  EXPECT_EQ(slots.Allocate(), index);
}

TEST(SlotAllocatorTest, KeepsItsInvariantsUnderRandomUse) {
  std::mt19937 random(1);
  SlotAllocator slots;
  std::vector<uint32_t> held;
  std::set<uint32_t> held_set;
  uint32_t quarantined = 0;
  for (int step = 0; step < 20000; ++step) {
    const uint32_t choice = random() % 100;
    if (choice < 2 && slots.size() < 500) {
      slots.Grow(random() % 20);
    } else if (choice < 55) {
      const uint32_t free_before = slots.free_count();
      const std::optional<uint32_t> index = slots.Allocate();
      ASSERT_EQ(index.has_value(), free_before > 0);
      if (index) {
        ASSERT_TRUE(held_set.insert(*index).second);
        held.push_back(*index);
      }
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      if (choice == 99 && quarantined < 50) {
        slots.Quarantine(held.back());
        ++quarantined;
      } else {
        slots.Free(held.back());
      }
      held_set.erase(held.back());
      held.pop_back();
    }
    ASSERT_EQ(slots.in_use_count(), held.size());
    ASSERT_EQ(slots.quarantined_count(), quarantined);
    if (step % 100 == 0) slots.CheckInvariants();
  }
}

}  // namespace
}  // namespace spillway::io
