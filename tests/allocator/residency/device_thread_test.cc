// Ends of the device's thread: at shutdown, and in a forked child.

#include "allocator/residency/device_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/allocator/core_fixture.h"
#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

TEST(DeviceThreadTest, ShutdownEndsWaitsForChunks) {
  CoreSetup setup;
  setup.budget_bytes = 2 * kBlock + (64 << 10);
  setup.run_ahead_bytes = 64 << 20;  // that wait ends with the GPU's work, not with us
  setup.host_bytes = 8 << 20;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> first = {Filled(device, 1), Filled(device, 2)};
  std::vector<CUdeviceptr> others;
  for (int i = 0; i < 3; ++i) others.push_back(device.MustAllocate(kBlock));
  PauseStreams(true);
  ASSERT_EQ(device.Launch(nullptr, first, [](const auto&) {}), CUDA_SUCCESS);  // all chunks are in use
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (CUdeviceptr other : others) {
    threads.emplace_back([&, other] {
      AccessSet set;
      device.addresses().Collect(other, &set);
      EXPECT_EQ(device->Run(set, {}, 1, [] { return CUDA_SUCCESS; }), CUDA_SUCCESS);
      ++passed;
    });
  }
  threads.emplace_back([&] {  // waits for a decommit that cannot end
    EXPECT_TRUE(device->EmptyCache().ok());
    ++passed;
  });
  ASSERT_TRUE(tests::WaitUntil([&] { return Waiting(device, os::WaitKind::kChunks) == others.size(); }));
  EXPECT_LE(passed.load(), 1);
  const auto start = std::chrono::steady_clock::now();
  device->Shutdown();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(passed.load(), 4);
  PauseStreams(false);
}

TEST(DeviceThreadTest, AForkedChildPassesEverythingThroughAndEnds) {
  CoreDevice device({});
  const CUdeviceptr block = Filled(device, 1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    device->AbandonAfterFork();
    AccessSet set;
    device.addresses().Collect(block, &set);
    bool passed =
        device->Run(set, {}, 1, [] { return CUDA_ERROR_NOT_INITIALIZED; }) == CUDA_ERROR_NOT_INITIALIZED;
    passed &= device->Free(block).ok() && !device->Allocate(kBlock, {}).ok();
    device->Shutdown();  // joins nothing
    _exit(passed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(Wrong(device, block, 1), 0u);
}

}  // namespace
}  // namespace spillway::allocator
