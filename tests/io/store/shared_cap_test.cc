// The cap of a directory that several stores share: as processes would, for each has locks of its own.

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

#include "io/os/clock.h"
#include "io/store/spill_store.h"
#include "tests/sizes.h"

namespace spillway::io {
namespace {

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

TEST_F(SharedCapTest, ARankKeepsToItsPart) {
  const auto first = Store(2);
  EXPECT_TRUE(first->GrowTo(kCap / 2).ok());
  const auto second = Store(2);
  EXPECT_TRUE(absl::IsResourceExhausted(first->GrowTo(kCap / 2 + 2 * kMiB)))
      << "though the other needs nothing";
  EXPECT_TRUE(second->GrowTo(kCap / 2).ok());
}

TEST_F(SharedCapTest, ANewcomerGetsWhatIsLeft) {
  const auto first = Store(0);
  ASSERT_TRUE(first->GrowTo(kCap * 3 / 4).ok());
  const auto second = Store(0);
  EXPECT_LT(SecondsOf([&] { EXPECT_TRUE(absl::IsResourceExhausted(second->GrowTo(kCap / 2))); }), 2)
      << "nobody gives anything back";
  EXPECT_TRUE(second->GrowTo(kCap / 4).ok());
  EXPECT_LE(first->capacity_bytes() + second->capacity_bytes(), kCap);
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
