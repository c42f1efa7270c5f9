// The pure parts of the room: which slot, which directory, which transfer next, and the checksum.

#include <gtest/gtest.h>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "io/aligned_buffer.h"
#include "io/checksum.h"
#include "io/slot_allocator.h"
#include "io/slot_table.h"
#include "io/stripe.h"
#include "io/transfer_order.h"
#include "tests/io/store_helpers.h"

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
  table.EndWrite(slot, WriteOutcome::kSlotSuspect, Checksum{});
  table.Release(slot);
  EXPECT_EQ(table.slots().quarantined_count(), 1u);
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
}

TEST(StripeTest, TakesTheDirectoryThatWouldBeDoneFirst) {
  std::vector<DirectoryLoad> loads(2);
  loads[0] = {.queued_bytes = 30, .bytes_per_second = 3, .free_slots = 5, .usable = true};
  loads[1] = {.queued_bytes = 20, .bytes_per_second = 1, .free_slots = 5, .usable = true};
  EXPECT_EQ(PickDirectory(loads, 3), 0u);
  loads[0].free_slots = 0;
  EXPECT_EQ(PickDirectory(loads, 3), 1u);
  loads[1].usable = false;
  EXPECT_FALSE(PickDirectory(loads, 3).has_value());
  EXPECT_FALSE(PickDirectory({}, 3).has_value());
}

TEST(StripeTest, SharesBySpeedAndTreatsTheUnmeasuredAsFast) {
  std::vector<DirectoryLoad> loads(3);
  loads[0] = {.queued_bytes = 0, .bytes_per_second = 4e9, .free_slots = 1000, .usable = true};
  loads[1] = {.queued_bytes = 0, .bytes_per_second = 1e9, .free_slots = 1000, .usable = true};
  loads[2] = {.queued_bytes = 0, .bytes_per_second = 0, .free_slots = 1000, .usable = true};
  std::map<size_t, int> share;
  for (int i = 0; i < 900; ++i) {
    const size_t chosen = PickDirectory(loads, 2 << 20).value();
    loads[chosen].queued_bytes += 2 << 20;
    ++share[chosen];
  }
  EXPECT_NEAR(share[0], 400, 2);
  EXPECT_NEAR(share[1], 100, 2);
  EXPECT_NEAR(share[2], 400, 2);
}

std::shared_ptr<Transfer> Waiting(TransferClass transfer_class, uint32_t slot, uint32_t bytes) {
  auto transfer = std::make_shared<Transfer>();
  transfer->transfer_class = transfer_class;
  transfer->slot = slot;
  transfer->bytes = bytes;
  return transfer;
}

// Takes one request of 1 byte.
TransferClass TakeOne(TransferOrder* order) {
  const std::shared_ptr<Transfer> next = order->Next();
  ++next->submitted;
  return next->transfer_class;
}

TEST(TransferOrderTest, DemandReadsComeFirstThenPrefetchThenWrites) {
  TransferOrder order;
  EXPECT_EQ(order.Next(), nullptr);
  order.Push(Waiting(TransferClass::kWrite, 1, 2));
  order.Push(Waiting(TransferClass::kPrefetchRead, 2, 2));
  order.Push(Waiting(TransferClass::kDemandRead, 3, 2));
  std::vector<TransferClass> taken;
  for (int i = 0; i < 6; ++i) taken.push_back(TakeOne(&order));
  using enum TransferClass;
  EXPECT_EQ(taken, (std::vector{kDemandRead, kDemandRead, kPrefetchRead, kPrefetchRead, kWrite, kWrite}));
  EXPECT_EQ(order.Next(), nullptr);
}

TEST(TransferOrderTest, NobodyStarves) {
  TransferOrder order;
  order.Push(Waiting(TransferClass::kWrite, 1, 1000000));
  order.Push(Waiting(TransferClass::kPrefetchRead, 2, 1000000));
  order.Push(Waiting(TransferClass::kDemandRead, 3, 1000000));
  std::map<TransferClass, int> taken;
  for (int i = 0; i < 1800; ++i) ++taken[TakeOne(&order)];
  EXPECT_GE(taken[TransferClass::kWrite], 90);
  EXPECT_GE(taken[TransferClass::kPrefetchRead], 90);
  EXPECT_GE(taken[TransferClass::kDemandRead], 1500);
}

TEST(TransferOrderTest, ADirectionWithEnoughInFlightLetsTheOtherGoFirst) {
  TransferOrder order;
  order.Push(Waiting(TransferClass::kDemandRead, 1, 10));
  order.Push(Waiting(TransferClass::kPrefetchRead, 2, 10));
  order.Push(Waiting(TransferClass::kWrite, 3, 2));
  constexpr std::array<bool, 2> kReadsBusy = {true, false};
  constexpr std::array<bool, 2> kWritesBusy = {false, true};
  constexpr std::array<bool, 2> kBothBusy = {true, true};
  const auto slot = [&order](const std::array<bool, 2>& busy) {
    const std::shared_ptr<Transfer> next = order.Next(busy);
    ++next->submitted;
    return next->slot;
  };
  EXPECT_EQ(slot(kReadsBusy), 3u);
  EXPECT_EQ(slot(kWritesBusy), 1u);
  EXPECT_EQ(slot(kBothBusy), 1u) << "then as ever";
  EXPECT_EQ(slot(kReadsBusy), 3u);
  EXPECT_EQ(slot(kReadsBusy), 1u) << "nothing else waits";
}

TEST(TransferOrderTest, PromotesThePrefetchReadsOfOneSlot) {
  TransferOrder order;
  order.Push(Waiting(TransferClass::kPrefetchRead, 1, 1));
  order.Push(Waiting(TransferClass::kPrefetchRead, 2, 1));
  order.Push(Waiting(TransferClass::kDemandRead, 3, 1));
  order.Promote(2);
  std::vector<uint32_t> slots;
  while (const std::shared_ptr<Transfer> next = order.Next()) {
    ++next->submitted;
    slots.push_back(next->slot);
  }
  EXPECT_EQ(slots, (std::vector<uint32_t>{3, 2, 1}));
}

TEST(TransferOrderTest, PassesByTransfersThatFailed) {
  TransferOrder order;
  auto failed = Waiting(TransferClass::kDemandRead, 1, 10);
  order.Push(failed);
  order.Push(Waiting(TransferClass::kDemandRead, 2, 10));
  failed->status = absl::UnknownError("");
  EXPECT_EQ(order.Next()->slot, 2u);
}

TEST(ChecksumTest, DoesNotDependOnTheProcessor) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
  AlignedBuffer data(kSlotBytes);
  FillPattern(data.data(), data.size(), 5);
  for (const size_t bytes : {size_t{4096}, size_t{12288}, data.size()}) {
    EXPECT_EQ(checksum_internal::ComputeBaseline(data.data(), bytes, 77),
              checksum_internal::ComputeAvx2(data.data(), bytes, 77));
  }
#endif
}

TEST(ChecksumTest, TellsBytesPlacesAndUsesApart) {
  AlignedBuffer data(8192);
  FillPattern(data.data(), data.size(), 5);
  const uint64_t seed = ChecksumSeed(0, 0, 1);
  const Checksum right = ComputeChecksum(data.data(), data.size(), seed);
  EXPECT_EQ(ComputeChecksum(data.data(), data.size(), seed), right);
  for (size_t i = 0; i < data.size(); i += 97) {
    data.data()[i] ^= 1;
    EXPECT_FALSE(ComputeChecksum(data.data(), data.size(), seed) == right) << i;
    data.data()[i] ^= 1;
  }
  std::set<uint64_t> seeds;
  for (uint32_t directory = 0; directory < 8; ++directory) {
    for (uint32_t index = 0; index < 64; ++index) {
      for (uint32_t generation = 1; generation < 64; ++generation) {
        seeds.insert(ChecksumSeed(directory, index, generation));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 8u * 64u * 63u);
}

}  // namespace
}  // namespace spillway::io
