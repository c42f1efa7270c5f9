// Pauses beside launches: those that are on their way, that wait for chunks, and that wait for a resume from outside.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "allocator/residency/pauser.h"
#include "tests/allocator/motion_helpers.h"
#include "tests/allocator/pause_helpers.h"

namespace spillway::allocator {
namespace {

using ::testing::HasSubstr;

// Keeps launches until it is opened.
class Gate : public PauseGate {
 public:
  absl::Status AwaitResume(absl::FunctionRef<std::string()> name) override {
    names = name();
    ++waiting;
    open.wait(false);
    --waiting;
    return answer;
  }
  void Open() {
    open.store(true);
    open.notify_all();
  }
  std::string names;
  std::atomic<int> waiting{0};
  std::atomic<bool> open{false};
  absl::Status answer;
};

TEST(PausesAndLaunchesTest, ALaunchThatWasOnItsWayEndsFirst) {
  CoreDevice device(WithHost());
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 2);
  device.Synchronize();
  StopAt stop("launch.inside_section");
  std::thread launch = Launching(device, blocks[0], 8, CUDA_SUCCESS);
  stop.WaitUntilReached();
  PauseStats stats;
  std::thread pause([&] { EXPECT_TRUE(device->Pause(kAll, &stats).ok()); });
  ASSERT_TRUE(tests::WaitUntil([&] {
    const TableLock lock(device->core()->table);
    return BlockAt(device, blocks[0])->paused();
  }));
  stop.Release();
  launch.join();
  pause.join();
  EXPECT_EQ(stats.host_bytes, 2 * kBlock);
  Resume(device);
  EXPECT_EQ(Wrong(device, blocks[0], 8), 0u);
}

// The bytes of the dropped block were wanted by a launch that had passed its gate: it runs, and then they go.
TEST(PausesAndLaunchesTest, ADroppedBlockIsDroppedAfterTheLaunchThatHadPassedItsGate) {
  CoreDevice device(WithHost());
  const CUdeviceptr cache = FilledIn(device, {1, false}, 1);
  StopAt stop("launch.inside_section");
  std::thread launch = Launching(device, cache, 8, CUDA_SUCCESS);
  stop.WaitUntilReached();
  PauseStats stats;
  std::thread pause([&] { EXPECT_TRUE(device->Pause(kAll, &stats).ok()); });
  ASSERT_TRUE(tests::WaitUntil([&] {
    const TableLock lock(device->core()->table);
    return BlockAt(device, cache)->paused();
  }));
  stop.Release();
  launch.join();
  pause.join();
  EXPECT_EQ(stats.dropped_bytes, kBlock);
  EXPECT_EQ(stats.host_bytes, 0u);
}

// A launch waits behind another one, and its block is paused meanwhile.
TEST(PausesAndLaunchesTest, ALaunchThatWaitsInTheQueueLooksAgain) {
  CoreDevice device(WithHost());
  const CUdeviceptr first = FilledIn(device, {}, 1);
  const CUdeviceptr second = FilledIn(device, {1, true}, 2);
  Pause(device);
  Resume(device, kAll);
  ASSERT_TRUE(tests::WaitUntil([&] { return StateOf(device, second) == BlockState::kResident; }));
  Pause(device);
  const std::vector<CUdeviceptr> others = AllocateFilled(device, 7);
  device.Synchronize();
  PauseStreams(true);
  for (const CUdeviceptr block : others) ASSERT_EQ(FillOne(device, block, 3), CUDA_SUCCESS);  // in use by now
  {
    const TableLock lock(device->core()->table);  // nothing comes back before it is named
    device->core()->table.ResumeLocked(lock, BlockAt(device, first), PausedBy::kJob);
    device->core()->table.ResumeLocked(lock, BlockAt(device, second), PausedBy::kJob);
  }
  std::thread granted = Launching(device, first, 8, CUDA_SUCCESS);
  AwaitClaim(device);
  std::thread refused = Launching(device, second, 9, CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_TRUE(tests::WaitUntil([&] { return Waiting(device, os::WaitKind::kChunks) == 2; }));
  Pause(device, {PausedBy::kJob, 1});
  PauseStreams(false);
  granted.join();
  refused.join();
  EXPECT_EQ(Wrong(device, first, 8), 0u);
  Resume(device);
  EXPECT_EQ(Wrong(device, second, 2), 0u);
}

TEST(PausesAndLaunchesTest, FromOutsideLaunchesWaitForTheResume) {
  Gate gate;
  CoreSetup setup = WithHost();
  setup.pause_gate = &gate;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 2);
  Pause(device, kFromOutside);
  std::thread launch = Launching(device, blocks[0], 8, CUDA_SUCCESS);
  ASSERT_TRUE(tests::WaitUntil([&] { return gate.waiting == 1; }));
  EXPECT_EQ(device->Stats().chunk_bytes, 0u);
  Resume(device, kFromOutside);
  gate.Open();
  launch.join();
  EXPECT_EQ(Wrong(device, blocks[0], 8), 0u);
  EXPECT_EQ(Wrong(device, blocks[1], 2), 0u);
}

TEST(PausesAndLaunchesTest, FromOutsideNewBlocksWaitToo) {
  Gate gate;
  CoreSetup setup = WithHost();
  setup.pause_gate = &gate;
  CoreDevice device(setup);
  Pause(device, kFromOutside);
  const CUdeviceptr block = device.MustAllocate(kBlock);
  std::thread launch = Launching(device, block, 8, CUDA_SUCCESS);
  ASSERT_TRUE(tests::WaitUntil([&] { return gate.waiting == 1; }));
  Resume(device, kFromOutside);
  gate.Open();
  launch.join();
  EXPECT_EQ(Wrong(device, block, 8), 0u);
}

TEST(PausesAndLaunchesTest, TheGateMayRefuseALaunchThatWaits) {
  Gate gate;
  gate.answer = IllegalState("a signal came");
  gate.Open();
  CoreSetup setup = WithHost();
  setup.pause_gate = &gate;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 1);
  Pause(device, kFromOutside);
  EXPECT_EQ(FillOne(device, blocks[0], 8), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(device->LastError(), "a signal came");
  EXPECT_THAT(gate.names, HasSubstr("a launch"));
}

// What the job paused stays paused when the pause from outside is over.
TEST(PausesAndLaunchesTest, EachResumesWhatItPaused) {
  Gate gate;
  CoreSetup setup = WithHost();
  setup.pause_gate = &gate;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 2);
  Pause(device);
  const PauseStats stats = Pause(device, kFromOutside);
  EXPECT_EQ(stats.host_bytes, 0u);
  Resume(device, kFromOutside);
  EXPECT_EQ(FillOne(device, blocks[0], 8), CUDA_ERROR_ILLEGAL_STATE);
  Resume(device);
  ExpectContents(device, blocks);
}

}  // namespace
}  // namespace spillway::allocator
