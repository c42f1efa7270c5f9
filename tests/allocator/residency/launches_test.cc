// Launches that need what the driver or the tiers give late, and uses that an eviction must not miss though two
// threads, or a launch and an eviction, meet at a bad moment.

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/allocator/motion_helpers.h"
#include "tests/fakes/gate.h"

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

std::atomic<uint64_t> events_recorded{0};
CUresult CountRecord(CUevent event, CUstream stream) {
  ++events_recorded;
  return CoreDevice::Driver()->cuEventRecord(event, stream);
}

// An event between two launches that overlap would keep them apart.
TEST(LaunchesTest, AStreamWhoseLaunchesOverlapGetsFewEvents) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuEventRecord = &CountRecord;
  CoreSetup setup;
  setup.driver = &driver;
  setup.run_ahead_bytes = uint64_t{1} << 40;  // no wait for launches, which would cover them
  CoreDevice device(setup);
  const CUdeviceptr block = Filled(device, 5);
  device->core()->pressure.store(true);
  // Events, and the most that time allows an overlapping stream.
  const auto launch_many = [&] {
    const uint64_t before = events_recorded.load();
    const int64_t start = os::Clock::System()->NowNanos();
    for (int i = 0; i < 640; ++i)
      EXPECT_EQ(device.Launch(nullptr, {block}, [](const auto&) {}), CUDA_SUCCESS);
    const int64_t passed = os::Clock::System()->NowNanos() - start;
    return std::pair(events_recorded.load() - before, passed / StreamClock::kOverlapEventNanos + 1);
  };
  const auto [each_16th, _] = launch_many();
  EXPECT_GE(each_16th, 40u);
  device->RecordOverlap({});
  const auto [few, most] = launch_many();
  EXPECT_LE(few, static_cast<uint64_t>(most));
  EXPECT_EQ(device->Stats().overlapping_launches, 1u);
  device.Synchronize();
}

CoreDevice* slow_device = nullptr;
tests::Gate* copies_may_go = nullptr;
CUresult SlowCopyIn(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  EXPECT_EQ(slow_device->Launch(stream, {}, [wait = copies_may_go->Wait()](const auto&) { wait(); }),
            CUDA_SUCCESS);
  return CoreDevice::Driver()->cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}

// The call for whose sake evictions end may come on a stream that waits for nothing.
TEST(LaunchesTest, WhenEvictionsEndTheBytesHaveArrivedForEveryStream) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuMemcpyHtoDAsync_v2 = &SlowCopyIn;
  CoreSetup setup;
  setup.driver = &driver;
  CoreDevice device(setup);
  tests::Gate go;
  slow_device = &device;
  copies_may_go = &go;
  const CUdeviceptr block = Filled(device, 5);
  device.Synchronize();
  StartEviction(device, block);
  WaitForState(device, block, BlockState::kSpilled);
  std::atomic<bool> ended{false};
  std::thread end([&] {
    EXPECT_TRUE(device->StopEvicting().ok());
    ended = true;
  });
  // The thread itself waits for the bytes: not only for their copies to be enqueued.
  const auto waits = [&] {
    return std::ranges::any_of(device->core()->waits->UnderWay(),
                               [](const auto& wait) { return wait.subject == "a block that is to stay"; });
  };
  EXPECT_TRUE(tests::WaitUntil([&] { return ended || waits(); }));
  EXPECT_FALSE(ended.load());
  go.Open();
  end.join();
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
    EXPECT_TRUE(tests::WaitUntil([&] { return ended() > 0; }));
    EXPECT_EQ(device->Stats().evictions_cancelled, 1u) << point;
    EXPECT_EQ(StateOf(device, block), BlockState::kResident);
    EXPECT_EQ(Wrong(device, block, 5), 0u);
  }
}

}  // namespace
}  // namespace spillway::allocator
