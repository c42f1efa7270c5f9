#include "integration/engine/devices.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace spillway::integration {
namespace {

std::vector<int> InService(const Devices& devices) {
  std::vector<int> numbers;
  devices.ForEach([&numbers](const ServedDevice& served) { numbers.push_back(served.device); });
  return numbers;
}

ServedDevice Served(int device, uint64_t bytes = 0) { return {device, bytes, nullptr, nullptr}; }

TEST(DevicesTest, ADeviceIsFoundOnceItIsPublished) {
  Devices devices;
  EXPECT_FALSE(devices.any());
  const ServedDevice* const kept = devices.Keep(Served(1, 4096));
  EXPECT_EQ(devices.Find(1), nullptr);
  EXPECT_FALSE(devices.any());
  EXPECT_TRUE(InService(devices).empty());
  ASSERT_EQ(devices.Kept().size(), 1u) << "one whose start fails is ended with the others";

  devices.Publish(1);
  EXPECT_EQ(devices.Find(1), kept);
  EXPECT_EQ(devices.Find(1)->device_bytes, 4096u);
  EXPECT_TRUE(devices.any());
  EXPECT_EQ(InService(devices), std::vector<int>{1});
}

TEST(DevicesTest, OtherNumbersAreNotFound) {
  Devices devices;
  devices.Keep(Served(0));
  devices.Publish(0);
  for (const int device : {-1, 1, allocator::kMaxDevices, allocator::kMaxDevices + 1})
    EXPECT_EQ(devices.Find(device), nullptr) << device;
}

TEST(DevicesTest, TheyStandInTheOrderOfTheirNumbers) {
  Devices devices;
  for (const int device : {allocator::kMaxDevices - 1, 0, 2}) {
    devices.Keep(Served(device));
    if (device != 0) devices.Publish(device);
  }
  ASSERT_EQ(devices.Kept().size(), 3u);
  EXPECT_EQ(devices.Kept()[1]->device, 2);
  EXPECT_EQ(InService(devices), (std::vector<int>{2, allocator::kMaxDevices - 1}));
}

// What was written to a device before it was published is there for who finds it (ThreadSanitizer looks).
TEST(DevicesTest, ALookNeedsNoLock) {
  Devices devices;
  std::thread other([&devices] {
    const ServedDevice* served = nullptr;
    while ((served = devices.Find(0)) == nullptr) std::this_thread::yield();
    EXPECT_EQ(served->device_bytes, 77u);
  });
  devices.Keep(Served(0, 77));
  devices.Publish(0);
  other.join();
}

}  // namespace
}  // namespace spillway::integration
