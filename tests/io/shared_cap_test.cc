// The cap of a directory that several stores share: as processes would, for each has locks of its own.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "io/os/clock.h"
#include "io/spill_store.h"

namespace spillway::io {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kCap = 64 * kMiB;

class SharedCapTest : public ::testing::Test {
 protected:
  std::unique_ptr<SpillStore> Store(int sharers) {
    SpillStoreOptions options;
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

}  // namespace
}  // namespace spillway::io
