// GPU memory in the wrong sizes: whatever blocks came and went before, the largest block that the budget holds gets its
// memory, from handles that are released and made anew; and while the driver does that, a launch whose blocks are
// resident goes on.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

CoreSetup Roomy() {
  CoreSetup setup;
  setup.host_bytes = 16 << 20;
  return setup;
}

// Chunks of the largest block that one launch may name.
uint64_t MostChunks(const CoreSetup& setup) {
  return (setup.budget_bytes - setup.external_share_bytes) / kChunk;
}

// Blocks of random sizes are used and freed, so that the free handles have sizes of all kinds. The first stays.
std::vector<CUdeviceptr> Fragment(CoreDevice& device, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 60; ++i) {
    if (blocks.size() > 1 && random() % 3 == 0) {
      std::swap(blocks[1 + random() % (blocks.size() - 1)], blocks.back());
      EXPECT_TRUE(device->Free(blocks.back()).ok());
      blocks.pop_back();
    } else {
      const uint64_t bytes = (1 + random() % 9) * kChunk;
      blocks.push_back(device.MustAllocate(blocks.empty() ? kChunk : bytes));
      const uint64_t filled = blocks.size() == 1 ? kChunk : bytes;
      EXPECT_EQ(device.Launch(nullptr, {blocks.back()},
                              [filled](const auto& a) { CoreDevice::Fill(a[0], filled, 7); }),
                CUDA_SUCCESS);
    }
  }
  device.Synchronize();
  return blocks;
}

TEST(FragmentationTest, TheLargestBlockIsServedWhateverWasThereBefore) {
  uint64_t remade = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    CoreDevice device(Roomy());
    const std::vector<CUdeviceptr> blocks = Fragment(device, seed);
    const uint64_t bytes = MostChunks(Roomy()) * kChunk;
    // Some seeds free what is there, so that it is cached; with others it must leave.
    for (size_t i = 1; i < blocks.size() && seed % 2 == 0; ++i) EXPECT_TRUE(device->Free(blocks[i]).ok());
    const CUdeviceptr largest = device.MustAllocate(bytes);
    EXPECT_EQ(device.Launch(nullptr, {largest}, [=](const auto& a) { CoreDevice::Fill(a[0], bytes, 3); }),
              CUDA_SUCCESS);
    std::atomic<uint64_t> wrong{1};  // by a kernel: it may leave at any time, for it leaves no headroom
    EXPECT_EQ(device.Launch(nullptr, {largest},
                            [&](const auto& a) { wrong = CoreDevice::Differences(a[0], bytes, 3); }),
              CUDA_SUCCESS);
    device.Synchronize();
    EXPECT_EQ(wrong.load(), 0u);
    const ResidencyStats stats = device->Stats();
    EXPECT_LE(stats.chunk_bytes, Roomy().budget_bytes);
    EXPECT_EQ(stats.chunk_bytes, bytes) << "nothing else fits beside it";
    remade += stats.handles_remade;
    device->CheckInvariants();
  }
  EXPECT_GT(remade, 20u) << "the handles were not in the wrong sizes";
}

// ---- A driver that makes memory anew for as long as the test wants.

std::atomic<bool> keeps_busy{false}, is_busy{false};
CUresult ReleaseSlowly(CUmemGenericAllocationHandle handle) {
  if (keeps_busy) is_busy = true;
  // A launch that waits for this call has it end in the end, and fails the test.
  if (!tests::WaitUntil([] { return !keeps_busy; })) keeps_busy = false;
  return CoreDevice::Driver()->cuMemRelease(handle);
}

TEST(FragmentationTest, MemoryThatIsMadeAnewKeepsNobodyElseWaiting) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    CudaDriver driver = *CoreDevice::Driver();
    driver.cuMemRelease = &ReleaseSlowly;
    CoreSetup setup = Roomy();
    setup.driver = &driver;
    setup.free_reserve_bytes = 1;  // the first block need not leave for one
    CoreDevice device(setup);
    const std::vector<CUdeviceptr> blocks = Fragment(device, seed);
    for (size_t i = 1; i < blocks.size(); ++i) EXPECT_TRUE(device->Free(blocks[i]).ok());
    EXPECT_EQ(device.Launch(nullptr, {blocks[0]}, [](const auto&) {}), CUDA_SUCCESS);
    device.Synchronize();
    const uint64_t bytes = (MostChunks(setup) - 1) * kChunk;
    is_busy = false;
    keeps_busy = true;
    std::atomic<bool> served{false};
    std::thread other([&] {
      CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
      const CUdeviceptr largest = device.MustAllocate(bytes);
      EXPECT_EQ(device.Launch(nullptr, {largest}, [](const auto&) {}), CUDA_SUCCESS);
      served = true;
    });
    EXPECT_TRUE(tests::WaitUntil([] { return is_busy.load(); })) << "no handle is made anew";
    for (int i = 0; i < 100; ++i)
      EXPECT_EQ(device.Launch(nullptr, {blocks[0]}, [](const auto&) {}), CUDA_SUCCESS);
    EXPECT_FALSE(served) << "a launch has waited for the driver";
    keeps_busy = false;
    other.join();
    device.Synchronize();
    device->CheckInvariants();
  }
}

}  // namespace
}  // namespace spillway::allocator
