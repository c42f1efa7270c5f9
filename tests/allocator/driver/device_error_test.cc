// Errors as they are: what the driver answers reaches the caller, a device that cannot be used any more keeps
// nobody waiting, and only lack of memory is out-of-memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "io/os/clock.h"
#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

// The stand-in's driver with calls that begin to fail when a test says so.
std::atomic<CUresult> queries{CUDA_SUCCESS}, unmaps{CUDA_SUCCESS}, copies_out{CUDA_SUCCESS},
    copies_in{CUDA_SUCCESS};
std::atomic<int> copies_tried{0};

const CudaDriver* FailingDriver() {
  static const CudaDriver driver = [] {
    CudaDriver wrapped = *CoreDevice::Driver();
    wrapped.cuEventQuery = [](CUevent event) {
      const CUresult result = queries.load();
      return result != CUDA_SUCCESS ? result : CoreDevice::Driver()->cuEventQuery(event);
    };
    wrapped.cuMemUnmap = [](CUdeviceptr address, size_t bytes) {
      const CUresult result = unmaps.load();
      return result != CUDA_SUCCESS ? result : CoreDevice::Driver()->cuMemUnmap(address, bytes);
    };
    wrapped.cuMemcpyDtoHAsync_v2 = [](void* host, CUdeviceptr device, size_t bytes, CUstream stream) {
      ++copies_tried;
      const CUresult result = copies_out.load();
      return result != CUDA_SUCCESS ? result
                                    : CoreDevice::Driver()->cuMemcpyDtoHAsync_v2(host, device, bytes, stream);
    };
    wrapped.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr device, const void* host, size_t bytes, CUstream stream) {
      const CUresult result = copies_in.load();
      return result != CUDA_SUCCESS ? result
                                    : CoreDevice::Driver()->cuMemcpyHtoDAsync_v2(device, host, bytes, stream);
    };
    return wrapped;
  }();
  return &driver;
}

class DeviceErrorTest : public testing::Test {
 protected:
  DeviceErrorTest() { Reset(); }
  ~DeviceErrorTest() override { Reset(); }
  static void Reset() {
    for (std::atomic<CUresult>* answer : {&queries, &unmaps, &copies_out, &copies_in})
      answer->store(CUDA_SUCCESS);
    copies_tried = 0;
    CoreDevice::launch_error = CUDA_SUCCESS;
    PauseStreams(false);
  }
  static void Poison(CUresult error) {
    CoreDevice::launch_error = error;
    queries.store(error);
  }
  static CoreSetup WithFailures() {
    CoreSetup setup;
    setup.driver = FailingDriver();
    return setup;
  }
  // Fourteen blocks, of which seven fit the GPU.
  static std::vector<CUdeviceptr> Blocks(CoreDevice& device) {
    std::vector<CUdeviceptr> blocks;
    for (uint64_t i = 0; i < 14; ++i) {
      blocks.push_back(device.MustAllocate(kBlock));
      EXPECT_EQ(Fill(device, blocks.back(), i), CUDA_SUCCESS);
    }
    device.Synchronize();
    return blocks;
  }
  static CUresult Fill(CoreDevice& device, CUdeviceptr block, uint64_t version) {
    return device.Launch(nullptr, {block}, [=](const auto& a) { CoreDevice::Fill(a[0], kBlock, version); });
  }
};

TEST_F(DeviceErrorTest, AStickyErrorEndsAWaitForChunks) {
  CoreDevice device(WithFailures());
  const std::vector<CUdeviceptr> blocks = Blocks(device);
  PauseStreams(true);
  // Seven blocks in use by launches that do not end.
  std::vector<CUdeviceptr> resident;
  for (CUdeviceptr block : blocks) {
    if (StateOf(device, block) == BlockState::kResident) resident.push_back(block);
  }
  EXPECT_EQ(device.Launch(nullptr, resident, [](const auto&) {}), CUDA_SUCCESS);
  CUresult result = CUDA_SUCCESS;
  std::thread waiter([&] {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    result = Fill(device, blocks[0], 77);
  });
  AwaitClaim(device);
  Poison(CUDA_ERROR_ASSERT);
  waiter.join();
  EXPECT_EQ(result, CUDA_ERROR_ASSERT);
  EXPECT_EQ(device->core()->error.first(), CUDA_ERROR_ASSERT);
  EXPECT_EQ(ResultOf(device->Allocate(kBlock, {}).status()), CUDA_ERROR_ASSERT);
  EXPECT_EQ(ResultOf(device->EmptyCache()), CUDA_ERROR_ASSERT);
  for (CUdeviceptr block : blocks) EXPECT_TRUE(device->Free(block).ok());
  Reset();
}

TEST_F(DeviceErrorTest, NothingMovesAfterAStickyError) {
  CoreDevice device(WithFailures());
  const std::vector<CUdeviceptr> blocks = Blocks(device);
  Fill(device, blocks[0], 1);
  Poison(CUDA_ERROR_ILLEGAL_ADDRESS);
  Fill(device, blocks[1], 1);
  ASSERT_TRUE(tests::WaitUntil([&] { return device->core()->error.any(); }));
  AwaitPolls(device, 1);  // the poll that found it may not have ended
  const int tried = copies_tried.load();
  for (CUdeviceptr block : blocks) EXPECT_EQ(Fill(device, block, 2), CUDA_ERROR_ILLEGAL_ADDRESS);
  device->OnExternalBytes(2 << 20);  // blocks would have to leave
  AwaitPolls(device, 20);
  EXPECT_EQ(copies_tried.load(), tried);
  Reset();
}

TEST_F(DeviceErrorTest, AnUnmapThatFailsIsTheDevicesErrorAndNoAbort) {
  CoreDevice device(WithFailures());
  std::vector<CUdeviceptr> blocks;
  for (uint64_t i = 0; i < 6; ++i) {
    blocks.push_back(device.MustAllocate(kBlock));
    ASSERT_EQ(Fill(device, blocks.back(), i), CUDA_SUCCESS);
  }
  unmaps.store(CUDA_ERROR_UNKNOWN);
  StartEviction(device, blocks[0]);
  ASSERT_TRUE(tests::WaitUntil([&] { return device->core()->error.any(); }));
  EXPECT_EQ(device->core()->error.first(), CUDA_ERROR_UNKNOWN);
  // Nobody knows what is mapped: no launch is made.
  EXPECT_EQ(Fill(device, blocks[0], 1), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(Fill(device, blocks[1], 1), CUDA_ERROR_UNKNOWN);
  for (CUdeviceptr block : blocks) EXPECT_TRUE(device->Free(block).ok());
  unmaps.store(CUDA_SUCCESS);
}

// ---- Without a sticky error.

TEST_F(DeviceErrorTest, WhenNoEvictionSucceedsTheLaunchIsRefusedWithTheFirstFailure) {
  CoreDevice device(WithFailures());
  std::vector<CUdeviceptr> blocks = Blocks(device);
  copies_out.store(CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr away = 0;
  for (CUdeviceptr block : blocks) {
    if (StateOf(device, block) == BlockState::kSpilled) away = block;
  }
  ASSERT_NE(away, 0u);
  CUresult result = CUDA_SUCCESS;
  // The reserve of free chunks serves some; after those nothing can leave.
  for (int i = 0; i < 14 && result == CUDA_SUCCESS; ++i) result = Fill(device, blocks[i], i);
  EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(device->LastError(), testing::HasSubstr("copying a chunk out"));
  copies_out.store(CUDA_SUCCESS);
  for (int i = 0; i < 14; ++i) EXPECT_EQ(Fill(device, blocks[i], i), CUDA_SUCCESS) << device->LastError();
  for (int i = 0; i < 14; ++i) EXPECT_EQ(Wrong(device, blocks[i], i), 0u);
  device->CheckInvariants();
}

// What cannot leave is tried less and less. A launch that waits does not take a pause for "never".
TEST_F(DeviceErrorTest, ALaunchEndsThePausesOfWhatFailedBefore) {
  CoreDevice device(WithFailures());
  const std::vector<CUdeviceptr> blocks = Blocks(device);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 14; ++i) EXPECT_EQ(Fill(device, blocks[i], i), CUDA_SUCCESS) << device->LastError();
    device.Synchronize();
    const TableLock lock(device->core()->table);
    device->core()->table.ForEachLiveLocked(lock, [](Block* block) {
      block->eviction.failures = 10;
      block->eviction.failed_at = os::Clock::System()->NowNanos();
      block->eviction.again_at = INT64_MAX;
    });
  }
  for (int i = 0; i < 14; ++i) EXPECT_EQ(Wrong(device, blocks[i], i), 0u);
}

// Pauses end when the test says so. The first is of 10 ms, each of the next ten twice as long as the one before.
TEST_F(DeviceErrorTest, ABlockThatCannotLeaveIsTriedLessAndLess) {
  CoreDevice device(WithFailures());
  const std::vector<CUdeviceptr> blocks = Blocks(device);
  copies_out.store(CUDA_ERROR_INVALID_VALUE);
  // Only now, so that the background cannot have got it before: it wants all blocks to leave.
  device->core()->free_reserve_bytes.store(16 * kBlock);
  const auto for_each_on_gpu = [&](const auto& visit) {
    const TableLock lock(device->core()->table);
    for (const CUdeviceptr block : blocks) {
      Block* const b = BlockAt(device, block);
      if (b->has_chunks()) visit(*b);
    }
  };
  const auto all_pause = [&] {
    bool all = true;
    for_each_on_gpu([&](const Block& b) { all &= b.eviction.job == nullptr && b.eviction.again_at != 0; });
    return all;
  };
  for (int tries = 1; tries <= 12; ++tries) {
    const int64_t before = os::Clock::System()->NowNanos();
    for_each_on_gpu([](Block& b) { b.eviction.again_at = 0; });
    device->thread()->Wake();
    ASSERT_TRUE(tests::WaitUntil(all_pause)) << "after " << tries << " tries";
    for_each_on_gpu([&](const Block& b) {
      EXPECT_GE(int{b.eviction.failures}, std::min(tries, 10));
      EXPECT_GE(b.eviction.again_at, before + (int64_t{10'000'000} << std::min(tries - 1, 10)));
    });
  }
  for_each_on_gpu([](Block& b) { b.eviction.again_at = INT64_MAX; });
  const auto failures = [&] {
    const TableLock lock(device->core()->table);
    return device->evictor()->failures();
  };
  const uint64_t failed = failures();
  AwaitPolls(device, 20);
  EXPECT_EQ(failures(), failed) << "a block is tried while it pauses";
  copies_out.store(CUDA_SUCCESS);
}

TEST_F(DeviceErrorTest, AFetchWhoseCopiesFailIsRefusedWithTheirError) {
  CoreDevice device(WithFailures());
  const std::vector<CUdeviceptr> blocks = Blocks(device);
  CUdeviceptr away = 0;
  for (CUdeviceptr block : blocks) {
    if (StateOf(device, block) == BlockState::kSpilled) away = block;
  }
  ASSERT_NE(away, 0u);
  const auto version = static_cast<uint64_t>(std::ranges::find(blocks, away) - blocks.begin());
  copies_in.store(CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Fill(device, away, 1), CUDA_ERROR_INVALID_VALUE);
  copies_in.store(CUDA_SUCCESS);
  EXPECT_EQ(Wrong(device, away, version), 0u);
  device->CheckInvariants();
}

}  // namespace
}  // namespace spillway::allocator
