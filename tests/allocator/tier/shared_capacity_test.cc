#include "allocator/tier/shared_capacity.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "tests/allocator/core_fixture.h"
#include "tests/sizes.h"

namespace spillway::allocator {
namespace {

// A host tier of `bytes`, all of it pinned.
std::unique_ptr<HostPool> PinnedPool(uint64_t bytes) {
  HostPool::Options options;
  options.storage_bytes = bytes;
  options.evict_staging_buffers = 0;
  options.fault_staging_buffers = 0;
  auto pool = HostPool::Create(CoreDevice::Driver(), CoreDevice::Context(), options);
  SPILLWAY_CHECK(pool.ok() && (*pool)->GrowStorageTo(bytes).ok());
  return *std::move(pool);
}

TEST(SharedCapacityTest, PromisesOfAllDevicesTogetherMustFit) {
  const auto pool = PinnedPool(80 * kMiB);
  SharedCapacity capacity(pool.get(), nullptr);
  EXPECT_TRUE(capacity.Change(0, 50 * kMiB));   // the first device
  EXPECT_FALSE(capacity.Change(0, 31 * kMiB));  // the second: 81 in all
  EXPECT_EQ(capacity.promised_bytes(), 50 * kMiB);
  EXPECT_TRUE(capacity.Change(0, 30 * kMiB));
  EXPECT_FALSE(capacity.Change(50 * kMiB, 51 * kMiB));
  EXPECT_TRUE(capacity.Change(50 * kMiB, 10 * kMiB));  // the first gives some back
  EXPECT_TRUE(capacity.Change(30 * kMiB, 70 * kMiB));
  EXPECT_TRUE(capacity.Change(70 * kMiB, 0));
  EXPECT_EQ(capacity.promised_bytes(), 10 * kMiB);
}

TEST(SharedCapacityTest, DevicesThatPromiseAtOnceNeverExceedTheCapacity) {
  static constexpr uint64_t kCapacity = 2 * kMiB;
  const auto pool = PinnedPool(kCapacity);
  SharedCapacity capacity(pool.get(), nullptr);
  std::vector<uint64_t> mine(4);
  std::vector<std::thread> devices;
  for (uint64_t& promise : mine) {
    devices.emplace_back([&capacity, &promise] {
      for (uint64_t i = 0; i < 20'000; ++i) {
        const uint64_t next = (i * 131 + reinterpret_cast<uintptr_t>(&promise)) % (kCapacity / 10 * 7);
        if (capacity.Change(promise, next)) promise = next;
        ASSERT_LE(capacity.promised_bytes(), kCapacity);
      }
    });
  }
  for (std::thread& device : devices) device.join();
  EXPECT_EQ(capacity.promised_bytes(), std::accumulate(mine.begin(), mine.end(), uint64_t{0}));
}

// The disk's row, by what a store reports.
TEST(SharedCapacityTest, ADiskLowersOnlyWhatIsNotPromised) {
  const auto pool = PinnedPool(80 * kMiB);
  SharedCapacity capacity(pool.get(), nullptr);
  capacity.SetCapacity(100 * kMiB);
  EXPECT_TRUE(capacity.Change(0, 170 * kMiB));
  EXPECT_EQ(capacity.PromisedBytes(), 90 * kMiB) << "host memory first";
  EXPECT_FALSE(capacity.LowerCapacity(80 * kMiB));
  EXPECT_TRUE(capacity.LowerCapacity(95 * kMiB));
  EXPECT_FALSE(capacity.Change(170 * kMiB, 176 * kMiB));
  EXPECT_TRUE(capacity.Change(170 * kMiB, 175 * kMiB));
}

// Promises stay, so that nothing fails for a drive that comes back; no more are made meanwhile.
TEST(SharedCapacityTest, ADirectoryThatClosesTakesWhatIsPromised) {
  SharedCapacity capacity(nullptr, nullptr);
  capacity.SetCapacity(100 * kMiB);
  EXPECT_TRUE(capacity.Change(0, 90 * kMiB));
  capacity.SetCapacity(0);
  EXPECT_EQ(capacity.promised_bytes(), 90 * kMiB);
  EXPECT_FALSE(capacity.Change(90 * kMiB, 91 * kMiB));
  EXPECT_TRUE(capacity.Change(90 * kMiB, 80 * kMiB));
  capacity.SetCapacity(100 * kMiB);
  EXPECT_TRUE(capacity.Change(80 * kMiB, 100 * kMiB));
}

// A job that runs keeps the places that it has had there; nothing else finds one until the budget comes free.
TEST(SharedCapacityTest, ASpentWriteBudgetEndsPromisesOnTheDisk) {
  int64_t now = 1'700'000'000'000'000'000;
  io::WriteBudget writes(
      {.bytes = 240 * kMiB, .interval = std::chrono::hours(24), .path = "", .unix_nanos = [&now] {
         return now;
       }});
  const auto pool = PinnedPool(80 * kMiB);
  SharedCapacity capacity(pool.get(), nullptr, &writes);
  capacity.SetCapacity(100 * kMiB);
  EXPECT_TRUE(capacity.Change(0, 120 * kMiB));
  EXPECT_EQ(capacity.UnpromisedNow(), 60 * kMiB);
  EXPECT_EQ(capacity.WritesPerSecond(), 0);
  writes.CountWritten(240 * kMiB);
  EXPECT_NEAR(capacity.WritesPerSecond(), 240.0 * kMiB / 86400, 1e-3);
  EXPECT_EQ(capacity.UnpromisedNow(), 0u);
  EXPECT_FALSE(capacity.Change(120 * kMiB, 122 * kMiB));
  EXPECT_TRUE(capacity.Change(120 * kMiB, 0));
  EXPECT_TRUE(capacity.Change(0, 120 * kMiB)) << "the next iteration of a job that runs";
  EXPECT_FALSE(capacity.Change(120 * kMiB, 122 * kMiB));
  writes.Record().IgnoreError();
  now += 3 * 3600 * int64_t{1'000'000'000};
  EXPECT_TRUE(capacity.Change(120 * kMiB, 180 * kMiB));
}

TEST(SharedCapacityTest, NoPromiseIsMadeOfWhatIsGivenBack) {
  static constexpr uint64_t kCapacity = 2 * kMiB;
  SharedCapacity capacity(nullptr, nullptr);
  capacity.SetCapacity(kCapacity);
  std::thread device([&capacity] {
    uint64_t mine = 0;
    for (uint64_t i = 0; i < 50'000; ++i) {
      const uint64_t next = i * 131 % (2 * kCapacity);
      if (capacity.Change(mine, next)) mine = next;
    }
    EXPECT_TRUE(capacity.Change(mine, 0));
  });
  for (uint64_t i = 0; i < 50'000; ++i) {
    const uint64_t bytes = i * 97 % kCapacity;
    if (capacity.LowerCapacity(bytes)) {
      EXPECT_LE(capacity.promised_bytes(), bytes);
      capacity.SetCapacity(kCapacity);
    }
  }
  device.join();
  EXPECT_EQ(capacity.promised_bytes(), 0u);
}

}  // namespace
}  // namespace spillway::allocator
