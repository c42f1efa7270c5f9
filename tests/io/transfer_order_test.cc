#include "io/transfer_order.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <vector>

namespace spillway::io {
namespace {

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

}  // namespace
}  // namespace spillway::io
