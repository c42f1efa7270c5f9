#include "io/store/transfer_order.h"

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
  using Load = TransferOrder::Load;
  constexpr std::array<Load, 2> kReadsBusy = {Load::kBusy, Load::kLight};
  constexpr std::array<Load, 2> kWritesBusy = {Load::kLight, Load::kBusy};
  constexpr std::array<Load, 2> kBothBusy = {Load::kBusy, Load::kBusy};
  const auto slot = [&order](const std::array<Load, 2>& load) {
    const std::shared_ptr<Transfer> next = order.Next(load);
    ++next->submitted;
    return next->slot;
  };
  EXPECT_EQ(slot(kReadsBusy), 3u);
  EXPECT_EQ(slot(kWritesBusy), 1u);
  EXPECT_EQ(slot(kBothBusy), 1u) << "then as ever";
  EXPECT_EQ(slot(kReadsBusy), 3u);
  EXPECT_EQ(slot(kReadsBusy), 1u) << "nothing else waits";
}

TEST(TransferOrderTest, AFullDirectionWaitsThoughNothingElseDoes) {
  using Load = TransferOrder::Load;
  TransferOrder order;
  order.Push(Waiting(TransferClass::kWrite, 1, 10));
  for (int i = 0; i < 2 * TransferOrder::kMaxPassedOver; ++i)
    EXPECT_EQ(order.Next({Load::kLight, Load::kFull}), nullptr);
  order.Push(Waiting(TransferClass::kPrefetchRead, 2, 1));
  EXPECT_EQ(order.Next({Load::kBusy, Load::kFull})->slot, 2u);
  EXPECT_EQ(order.Next()->slot, 2u) << "the time in which it was full gives it no turn";
}

TEST(TransferOrderTest, TakesOutTheWritesAlone) {
  TransferOrder order;
  order.Push(Waiting(TransferClass::kWrite, 1, 1));
  order.Push(Waiting(TransferClass::kDemandRead, 2, 1));
  const auto writes = order.TakeWrites();
  ASSERT_EQ(writes.size(), 1u);
  EXPECT_EQ(writes[0]->slot, 1u);
  EXPECT_EQ(order.Next()->slot, 2u);
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
