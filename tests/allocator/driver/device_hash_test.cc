#include "allocator/driver/device_hash.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/allocator/copy_helpers.h"

namespace spillway::allocator {
namespace {

TEST(DeviceHashTest, TheDeviceGivesWhatTheHostGives) {
  std::vector<std::string> images = {"//simcuda image 1\nspillway_content_hash\n"};
  CoreDevice device(SetupWith(nullptr));
  const CUdeviceptr block = Filled(device, 9);
  ScopedContext scope(CoreDevice::Driver(), CoreDevice::Context());
  auto hash = DeviceHash::Create(CoreDevice::Driver(), images[0]);
  ASSERT_TRUE(hash.ok()) << hash.status();
  for (uint64_t bytes : {uint64_t{4096}, uint64_t{64 << 10}, kBlock}) {
    ContentHash expected;
    EXPECT_EQ(device.Launch(nullptr, {block},
                            [&](const auto& a) { expected = HashOf(reinterpret_cast<void*>(a[0]), bytes); }),
              CUDA_SUCCESS);
    device.Synchronize();
    auto request = (*hash)->Enqueue((*hash)->stream(), block, bytes);
    ASSERT_TRUE(request.ok());
    device.Synchronize();
    EXPECT_EQ((*hash)->Take(&*request), expected) << bytes;
    EXPECT_FALSE(request->valid());
  }
  EXPECT_FALSE(DeviceHash::Create(CoreDevice::Driver(), "no image").ok());
  EXPECT_FALSE(DeviceHash::Create(CoreDevice::Driver(), "//simcuda image 1\nanother\n").ok());
}

}  // namespace
}  // namespace spillway::allocator
