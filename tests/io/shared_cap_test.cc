// The cap of a directory that several stores share: as processes would, for each has locks of its own.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/aligned_buffer.h"
#include "io/os/clock.h"
#include "io/spill_store.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/store_helpers.h"
#include "tests/sizes.h"

namespace spillway::io {
namespace {

constexpr uint64_t kCap = 64 * kMiB;

class SharedCapTest : public ::testing::Test {
 protected:
  // `broken`: every write fails.
  std::unique_ptr<SpillStore> Store(int sharers, bool broken = false) {
    SpillStoreOptions options;
    if (broken) {
      FaultPlan plan;
      plan.faults = {{.op = IoOp::kWrite, .count = UINT64_MAX, .error = EIO}};
      options.errors_until_closed = 1;
      options.retry_time = std::chrono::milliseconds(1);
      options.wrap_engine = [plan](std::unique_ptr<IoEngine> inner, size_t) {
        return MakeFaultyEngine(std::move(inner), plan);
      };
    }
    options.directories = {{"/var/tmp", kCap, "shared_cap_test " + std::to_string(getpid()), sharers}};
    options.growth_bytes = 8 * kMiB;
    options.disk_reserve_bytes = 1;
    options.late_frees = std::chrono::seconds(0);
    auto store = SpillStore::Create(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static double SecondsOf(const std::function<void()>& what) {
    const int64_t begun = os::Clock::System()->NowNanos();
    what();
    return static_cast<double>(os::Clock::System()->NowNanos() - begun) / 1e9;
  }
};

TEST_F(SharedCapTest, ARankKeepsToItsPartUntilItHasSeenTheOther) {
  const auto first = Store(2);
  EXPECT_TRUE(first->GrowTo(kCap / 2).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(first->GrowTo(kCap / 2 + 2 * kMiB)));
  const auto second = Store(2);
  EXPECT_TRUE(first->GrowTo(kCap * 3 / 4).ok()) << "the other is there and needs nothing";
}

TEST_F(SharedCapTest, WhatIsLentAndNotPromisedComesBack) {
  const auto first = Store(2);
  const auto second = Store(2);
  std::atomic<uint64_t> promised{kCap / 2};
  first->SetPromised([&] { return promised.load(); });
  ASSERT_TRUE(first->GrowTo(kCap).ok());
  second->SetPromised([] { return kCap / 2; });
  EXPECT_LT(SecondsOf([&] { EXPECT_TRUE(second->GrowTo(kCap / 2).ok()); }), 10);
  EXPECT_GE(first->capacity_bytes(), promised.load());
  EXPECT_LE(first->capacity_bytes() + second->capacity_bytes(), kCap);
  first->SetPromised(nullptr);
  second->SetPromised(nullptr);
}

TEST_F(SharedCapTest, ANewcomerGetsItsPartWithoutAsking) {
  const auto first = Store(0);
  std::atomic<uint64_t> promised{kCap / 4};
  first->SetPromised([&] { return promised.load(); });
  ASSERT_TRUE(first->GrowTo(kCap).ok()) << "alone it has all";
  const auto second = Store(0);
  EXPECT_LT(SecondsOf([&] { EXPECT_TRUE(second->GrowTo(kCap / 2).ok()); }), 10);
  EXPECT_TRUE(absl::IsResourceExhausted(second->GrowTo(kCap / 2 + 2 * kMiB)));
  first->SetPromised(nullptr);
}

TEST_F(SharedCapTest, TheCapOfOneThatEndedIsFreeAtOnce) {
  auto first = Store(0);
  ASSERT_TRUE(first->GrowTo(kCap).ok());
  const auto second = Store(0);
  first.reset();
  EXPECT_LT(SecondsOf([&] { EXPECT_TRUE(second->GrowTo(kCap).ok()); }), 2);
}

// It asked for its part, and then its disk broke: the other may have that part, too.
TEST_F(SharedCapTest, OneWhoseDiskIsBrokenAsksForNothing) {
  const auto first = Store(2);
  const auto second = Store(2, /*broken=*/true);
  std::atomic<uint64_t> promised{kCap * 3 / 4};
  first->SetPromised([&] { return promised.load(); });
  ASSERT_TRUE(first->GrowTo(kCap * 3 / 4).ok());
  ASSERT_TRUE(second->GrowTo(kCap / 8).ok());
  const absl::StatusOr<std::vector<SlotId>> slots = second->TakeSlots(1);
  ASSERT_TRUE(slots.ok()) << slots.status();
  second->AskFor(kCap / 2);
  ASSERT_FALSE(second->GrowTo(kCap / 2).ok()) << "the first keeps what it has promised";
  second->AskFor(kCap / 2);
  EXPECT_TRUE(absl::IsResourceExhausted(first->GrowTo(kCap * 7 / 8))) << "the other is due it";
  const AlignedBuffer data(kSlotBytes);
  EXPECT_FALSE(WriteSync(second.get(), (*slots)[0], data.data(), kSlotBytes).ok());
  absl::Status grown;
  EXPECT_TRUE(tests::WaitUntil([&] {  // until the other's keeper has looked
    grown = first->GrowTo(kCap * 7 / 8);
    return grown.ok();
  })) << grown;
  first->SetPromised(nullptr);
}

}  // namespace
}  // namespace spillway::io
