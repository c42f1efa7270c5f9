// Uses that an eviction must not miss though two threads, or a launch and an eviction, meet at a bad moment.

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
  {
    const TableLock lock(device->core()->table);
    BlockAt(device, block)->ForgetUses();
  }
  ASSERT_TRUE(device->Free(block).ok());
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
