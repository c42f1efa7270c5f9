// Launches that need what the driver or the tiers give late, and uses that an eviction must not miss though two
// threads, or a launch and an eviction, meet at a bad moment.

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

TEST(UsesTest, ALateLaunchOfAFreedBlockDoesNotMakeItsSuccessorLookUnused) {
  CoreDevice device({});
  const CUdeviceptr block = Filled(device, 5);
  ASSERT_TRUE(device->Free(block).ok());
  StopAt stop("launch.numbered");
  // As with the end pointer of the block before it, or what an unset field of a parameter still contains.
  std::thread late([&] {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    EXPECT_EQ(device.Launch(nullptr, {block}, [](const auto&) {}), CUDA_SUCCESS);
  });
  stop.WaitUntilReached();
  ASSERT_EQ(device.MustAllocate(kBlock), block);
  EXPECT_EQ(device.Launch(nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], kBlock, 6); }),
            CUDA_SUCCESS);
  stop.Release();
  late.join();
  StartEviction(device, block);
  WaitForState(device, block, BlockState::kSpilled);  // not decommitted, which would leave it kEmpty
  EXPECT_EQ(Wrong(device, block, 6), 0u);
}

TEST(UsesTest, OnlyPinnedBlocksAreRecorded) {
  CoreDevice device({});
  const CUdeviceptr block = Filled(device, 5);
  ASSERT_TRUE(device->Free(block).ok());
  device.Synchronize();
  {
    const TableLock lock(device->core()->table);
    BlockAt(device, block)->ForgetUses();
  }
  const auto values = [&] {
    int count = 0;
    for (const auto& value : BlockAt(device, block)->gate.uses) count += value.load() != 0;
    return count;
  };
  // Freed, it is not pinned, and its uses may be forgotten at any moment.
  EXPECT_EQ(device.Launch(
                nullptr, {block}, [](const auto&) {}, 1, CoreDevice::Way::kPins),
            CUDA_SUCCESS);
  EXPECT_EQ(values(), 0);
  ASSERT_EQ(device.MustAllocate(kBlock), block);
  EXPECT_EQ(device.Launch(
                nullptr, {block}, [](const auto&) {}, 1, CoreDevice::Way::kPins),
            CUDA_SUCCESS);
  EXPECT_EQ(values(), 1);
}

std::atomic<bool> page_tables_full{false};
CUresult MapWhileThereAreTables(CUdeviceptr address, size_t size, size_t offset,
                                CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (page_tables_full.load()) return CUDA_ERROR_OUT_OF_MEMORY;
  return CoreDevice::Driver()->cuMemMap(address, size, offset, handle, flags);
}
CUresult ReleaseMakesTables(CUmemGenericAllocationHandle handle) {
  page_tables_full.store(false);
  return CoreDevice::Driver()->cuMemRelease(handle);
}

TEST(LaunchesTest, ADriverWithoutMemoryForAMappingGetsFreeChunksBack) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuMemMap = &MapWhileThereAreTables;
  driver.cuMemRelease = &ReleaseMakesTables;
  CoreSetup setup;
  setup.driver = &driver;
  CoreDevice device(setup);
  const CUdeviceptr cached = Filled(device, 1);
  ASSERT_TRUE(device->Free(cached).ok());
  const CUdeviceptr block = device.MustAllocate(2 * kBlock);
  page_tables_full.store(true);
  EXPECT_EQ(device.Launch(nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], 2 * kBlock, 3); }),
            CUDA_SUCCESS);
  EXPECT_FALSE(page_tables_full.load());
  page_tables_full.store(false);
}

CoreDevice* slow_device = nullptr;
CUresult SlowCopyIn(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  EXPECT_EQ(slow_device->Launch(stream, {}, [](const auto&) { usleep(20'000); }), CUDA_SUCCESS);
  return CoreDevice::Driver()->cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}

// The call for whose sake evictions end may come on a stream that waits for nothing.
TEST(LaunchesTest, WhenEvictionsEndTheBytesHaveArrivedForEveryStream) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuMemcpyHtoDAsync_v2 = &SlowCopyIn;
  CoreSetup setup;
  setup.driver = &driver;
  CoreDevice device(setup);
  slow_device = &device;
  const CUdeviceptr block = Filled(device, 5);
  device.Synchronize();
  StartEviction(device, block);
  WaitForState(device, block, BlockState::kSpilled);
  ASSERT_TRUE(device->StopEvicting().ok());
  EXPECT_EQ(CoreDevice::Differences(block, kBlock, 5), 0u);
}

TEST(UsesTest, AStreamRecordedDuringAnEvictionTakesItBack) {
  for (const char* point :
       {"evictor.before_section_wait", "evictor.before_reserve", "evictor.before_commit"}) {
    CoreDevice device({});
    const CUstream side = device.NewStream();
    const CUdeviceptr block = Filled(device, 5);
    StopAt stop(point);
    StartEviction(device, block);
    stop.WaitUntilReached();
    ASSERT_TRUE(device->RecordStream(block, side).ok());
    stop.Release();
    const auto ended = [&] { return device->Stats().evictions + device->Stats().evictions_cancelled; };
    for (int i = 0; i < 5000 && ended() == 0; ++i) usleep(1000);
    EXPECT_EQ(device->Stats().evictions_cancelled, 1u) << point;
    EXPECT_EQ(StateOf(device, block), BlockState::kResident);
    EXPECT_EQ(Wrong(device, block, 5), 0u);
  }
}

}  // namespace
}  // namespace spillway::allocator
