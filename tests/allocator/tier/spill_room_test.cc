#include "allocator/tier/spill_room.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kMib = 1 << 20;

// A host tier of that size, all of it pinned.
std::unique_ptr<HostPool> PinnedPool(uint64_t bytes) {
  HostPool::Options options;
  options.storage_bytes = bytes;
  options.evict_staging_pieces = 0;
  options.fault_staging_pieces = 0;
  auto pool = HostPool::Create(CoreDevice::Driver(), CoreDevice::Context(), options);
  SPILLWAY_CHECK(pool.ok() && (*pool)->GrowStorageTo(bytes).ok());
  return *std::move(pool);
}

TEST(SpillRoomTest, PromisesOfAllDevicesTogetherMustFit) {
  const auto pool = PinnedPool(80 * kMib);
  SpillRoom room(pool.get(), nullptr);
  EXPECT_TRUE(room.Change(0, 50 * kMib));   // the first device
  EXPECT_FALSE(room.Change(0, 31 * kMib));  // the second: 81 in all
  EXPECT_EQ(room.promised_bytes(), 50 * kMib);
  EXPECT_TRUE(room.Change(0, 30 * kMib));
  EXPECT_FALSE(room.Change(50 * kMib, 51 * kMib));
  EXPECT_TRUE(room.Change(50 * kMib, 10 * kMib));  // the first gives some back
  EXPECT_TRUE(room.Change(30 * kMib, 70 * kMib));
  EXPECT_TRUE(room.Change(70 * kMib, 0));
  EXPECT_EQ(room.promised_bytes(), 10 * kMib);
}

TEST(SpillRoomTest, DevicesThatPromiseAtOnceNeverPassTheRoom) {
  static constexpr uint64_t kRoom = 2 * kMib;
  const auto pool = PinnedPool(kRoom);
  SpillRoom room(pool.get(), nullptr);
  std::vector<uint64_t> mine(4);
  std::vector<std::thread> devices;
  for (uint64_t& promise : mine) {
    devices.emplace_back([&room, &promise] {
      for (uint64_t i = 0; i < 20'000; ++i) {
        const uint64_t next = (i * 131 + reinterpret_cast<uintptr_t>(&promise)) % (kRoom / 10 * 7);
        if (room.Change(promise, next)) promise = next;
        ASSERT_LE(room.promised_bytes(), kRoom);
      }
    });
  }
  for (std::thread& device : devices) device.join();
  EXPECT_EQ(room.promised_bytes(), std::accumulate(mine.begin(), mine.end(), uint64_t{0}));
}

}  // namespace
}  // namespace spillway::allocator
