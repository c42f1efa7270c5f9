// Pauses from outside the job: its launches wait at a gate until it is resumed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/allocator/residency/pause_helpers.h"

namespace spillway::allocator {
namespace {

using ::testing::HasSubstr;

// Keeps launches until it is opened.
class Gate : public PauseGate {
 public:
  absl::Status AwaitResume(absl::FunctionRef<std::string()> name, const os::Atomic<bool>&) override {
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

TEST(PauseFromOutsideTest, LaunchesWaitForTheResume) {
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

TEST(PauseFromOutsideTest, NewBlocksWaitToo) {
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

// They hold nothing before the resume. A job that allocates several before its first launch is not refused.
TEST(PauseFromOutsideTest, NewBlocksNeedNoPlaceOffTheGpu) {
  CoreSetup setup = WithHost(kBlock);
  setup.disk = false;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 1);
  Pause(device, kFromOutside);
  std::vector<CUdeviceptr> others;
  for (int i = 0; i < 5; ++i) {
    const absl::StatusOr<CUdeviceptr> block = device->Allocate(kBlock, {});
    ASSERT_TRUE(block.ok()) << block.status();
    others.push_back(*block);
  }
  Resume(device, kFromOutside);
  ExpectContents(device, blocks);
  for (const CUdeviceptr block : others) EXPECT_EQ(FillOne(device, block, 9), CUDA_SUCCESS);
  device->CheckInvariants();
}

TEST(PauseFromOutsideTest, TheGateMayRefuseALaunchThatWaits) {
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
TEST(PauseFromOutsideTest, EachResumesWhatItPaused) {
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
