// Evictions taken back at each phase, and frees in the middle of them: directed, with the delay points as
// sequence points.

#include "allocator/residency/transfer/evictor.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/allocator/core_fixture.h"
#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

// ---- Evictions taken back.

struct Phase {
  const char* point;
  int counted_as;  // EvictJob::Phase, or -1: too late to take back
};

class CancelTest : public testing::TestWithParam<Phase> {};

TEST_P(CancelTest, LaunchTakesTheEvictionBack) {
  CoreSetup setup;
  setup.host_bytes = 256 << 10;  // half of the block goes to the host, half to the disk
  CoreDevice device(setup);
  uint64_t before[5];
  for (int i = 0; i < 5; ++i) before[i] = TallyOf(Tally::kCancelled, i);
  const CUdeviceptr block = Filled(device, 5);
  StopAt stop(GetParam().point);
  StartEviction(device, block);
  stop.WaitUntilReached();
  std::thread launch([&] {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    EXPECT_EQ(Wrong(device, block, 5), 0u);
  });
  if (GetParam().counted_as >= 0) launch.join();  // needs nothing of the thread that stands still
  stop.Release();
  if (launch.joinable()) launch.join();
  EXPECT_EQ(Wrong(device, block, 5), 0u);
  const auto ended = [&] { return device->Stats().evictions + device->Stats().evictions_cancelled; };
  EXPECT_TRUE(tests::WaitUntil([&] { return ended() > 0; }));
  const ResidencyStats stats = device->Stats();
  EXPECT_EQ(stats.evictions_cancelled, GetParam().counted_as >= 0 ? 1u : 0u);
  EXPECT_EQ(stats.evictions, GetParam().counted_as >= 0 ? 0u : 1u);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(TallyOf(Tally::kCancelled, i) - before[i], i == GetParam().counted_as ? 1u : 0u) << i;
  ASSERT_TRUE(device->Free(block).ok());
  EXPECT_TRUE(tests::WaitUntil([&] { return device.disk()->stats().slots_in_use == 0; }));
  device->CheckInvariants();
}

INSTANTIATE_TEST_SUITE_P(Phases, CancelTest,
                         testing::Values(Phase{"evictor.before_section_wait", 1},
                                         Phase{"evictor.before_reserve", 2},
                                         Phase{"evictor.before_commit", 3}, Phase{"evictor.committed", -1}),
                         [](const testing::TestParamInfo<Phase>& phase) {
                           std::string name = phase.param.point;
                           name[name.find('.')] = '_';
                           return name;
                         });

TEST(MotionTest, FreeInTheMiddleOfAnEvictionGivesEverythingBack) {
  for (const char* point : {"evictor.before_section_wait", "evictor.before_reserve", "evictor.before_commit",
                            "evictor.committed"}) {
    CoreDevice device({});
    const CUdeviceptr block = Filled(device, 5);
    StopAt stop(point);
    StartEviction(device, block);
    stop.WaitUntilReached();
    ASSERT_TRUE(device->Free(block).ok());
    stop.Release();
    // Handed out again only when the transfer has ended: the address is promised, not the block.
    EXPECT_EQ(device.MustAllocate(kBlock), block) << point;
    EXPECT_EQ(device.Launch(nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], kBlock, 6); }),
              CUDA_SUCCESS);
    EXPECT_EQ(Wrong(device, block, 6), 0u) << point;
    ASSERT_TRUE(device->Free(block).ok());
    EXPECT_TRUE(tests::WaitUntil([&] { return device->Stats().host_tier_bytes == 0; }));
    device->CheckInvariants();
  }
}

void AwaitHandedOutAgain(CoreDevice& device, CUdeviceptr block) {
  EXPECT_TRUE(tests::WaitUntil([&] {
    const CUdeviceptr again = device.MustAllocate(kBlock);
    EXPECT_TRUE(again == block || device->Free(again).ok());
    return again == block;
  }));
}

TEST(MotionTest, BlockFreedDuringAnEvictionWaitsForItsRecordedStream) {
  CoreDevice device({});
  const CUstream side = device.NewStream();
  const CUdeviceptr block = Filled(device, 5);
  PauseStreams(true);
  uint64_t wrong = 0;
  ASSERT_EQ(
      device.Launch(side, {block}, [&](const auto& a) { wrong = CoreDevice::Differences(a[0], kBlock, 5); }),
      CUDA_SUCCESS);
  ASSERT_TRUE(device->RecordStream(block, side).ok());
  StartEviction(device, block);  // waits for the side stream
  AwaitPolls(device, 2);
  ASSERT_TRUE(device->Free(block).ok());
  WaitForState(device, block, BlockState::kCached);
  EXPECT_NE(device.MustAllocate(kBlock), block) << "the side stream still reads it";
  PauseStreams(false);
  device.Synchronize();
  EXPECT_EQ(wrong, 0u);
  AwaitHandedOutAgain(device, block);
}

TEST(MotionTest, BlockRecordedOnTheStreamOfAThreadThatEndedComesBack) {
  CoreDevice device({});
  const CUdeviceptr block = Filled(device, 5);
  std::thread([&] {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    ASSERT_TRUE(device->RecordStream(block, CU_STREAM_PER_THREAD).ok());
  }).join();
  ASSERT_TRUE(device->Free(block).ok());
  AwaitHandedOutAgain(device, block);
}

TEST(EvictorTest, WithoutAHashNothingIsCopiedEarly) {
  CoreDevice device({});
  const CUdeviceptr block = Filled(device, 1);
  const TableLock lock(device->core()->table);
  EXPECT_FALSE(device->evictor()->CopyOutLocked(lock, BlockAt(device, block), policy::PlanTier::kHost));
}

}  // namespace
}  // namespace spillway::allocator
