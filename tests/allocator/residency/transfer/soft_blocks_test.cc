// Blocks that leave for host memory and stay mapped there: kernels that no launch shows go on, and nothing is lost.

#include "allocator/residency/transfer/soft_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/allocator/copy_helpers.h"

namespace spillway::allocator {
namespace {

class SoftBlocksTest : public testing::Test {
 protected:
  SoftBlocksTest() {
    setup_ = SetupWith(&code_);
    setup_.reach = setup_.soft = true;
  }

  // What a kernel finds that has the address from elsewhere.
  static uint64_t WrongUnnamed(CoreDevice& device, CUdeviceptr block, uint64_t version) {
    std::atomic<uint64_t> wrong{0};
    EXPECT_EQ(device.Launch(nullptr, {},
                            [&](const auto&) { wrong += CoreDevice::Differences(block, kBlock, version); }),
              CUDA_SUCCESS);
    device.Synchronize();
    return wrong.load();
  }
  static void WriteUnnamed(CoreDevice& device, CUdeviceptr block, uint64_t version) {
    EXPECT_EQ(device.Launch(nullptr, {}, [=](const auto&) { CoreDevice::Fill(block, kBlock, version); }),
              CUDA_SUCCESS);
    device.Synchronize();
  }

  FixedHashCode code_;
  CoreSetup setup_;
};

TEST_F(SoftBlocksTest, AKernelThatNamesNothingReadsABlockThatHasLeft) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(device->Stats().soft_now_bytes, kBlock);
  EXPECT_EQ(WrongUnnamed(device, block, 1), 0u);
  EXPECT_EQ(StateOf(device, block), BlockState::kSpilled);
  EXPECT_EQ(Read(device, block, 1), 0u);
  EXPECT_EQ(device->Stats().soft_now_bytes, 0u);
  EXPECT_EQ(device->Stats().soft_writes, 0u);
  device->CheckInvariants();
}

// Takes its time to give the hash's image.
class LateHashCode : public FixedHashCode {
 public:
  absl::StatusOr<std::string> Image(int major, int minor) override {
    // Longer than a test needs to fill a block and to have it leave.
    static_cast<void>(tests::WaitUntil([] { return false; }, std::chrono::seconds(1)));
    return FixedHashCode::Image(major, minor);
  }
};

TEST_F(SoftBlocksTest, ABlockThatLeavesBeforeTheHashIsLoadedStaysMappedToo) {
  LateHashCode late;
  setup_.hash_code = &late;
  CoreDevice device(setup_);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(device->Stats().soft_now_bytes, kBlock);
  EXPECT_EQ(WrongUnnamed(device, block, 1), 0u);
}

TEST_F(SoftBlocksTest, ABlockThatLeavesWhileAllHashesAreUnderWayStaysMappedToo) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr copied = Filled(device, 1), compared = Filled(device, 2);
  Evict(device, compared);
  EXPECT_EQ(Read(device, compared, 2), 0u);
  ASSERT_TRUE(HasCopy(device, compared));
  DeviceHash* const hash = device->hash()->Get();
  std::vector<DeviceHash::Request> others(DeviceHash::kPlaces);
  {
    ScopedContext scope(CoreDevice::Driver(), CoreDevice::Context());
    for (DeviceHash::Request& other : others) other = *hash->Enqueue(hash->stream(), copied, kBlock);
    EXPECT_EQ(CoreDevice::Driver()->cuStreamSynchronize(hash->stream()), CUDA_SUCCESS);
  }
  StartEviction(device, copied);
  StartEviction(device, compared);
  EXPECT_FALSE(
      tests::WaitUntil([&] { return device->Stats().evictions > 1; }, std::chrono::milliseconds(50)));
  for (DeviceHash::Request& other : others) hash->Drop(&other);
  WaitForState(device, copied, BlockState::kSpilled);
  WaitForState(device, compared, BlockState::kSpilled);
  EXPECT_EQ(device->Stats().soft_now_bytes, 2 * kBlock);
  EXPECT_EQ(WrongUnnamed(device, copied, 1), 0u);
  EXPECT_EQ(WrongUnnamed(device, compared, 2), 0u);
}

TEST_F(SoftBlocksTest, WhatItWritesThereCounts) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  WriteUnnamed(device, block, 2);
  testing::internal::CaptureStderr();
  EXPECT_EQ(Read(device, block, 2), 0u);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("in host memory that no launch had named: its bytes count"));
  EXPECT_EQ(device->Stats().soft_writes, 1u);
  EXPECT_FALSE(HasCopy(device, block));
  // The old bytes are the block's again: what lies in host memory is not.
  Write(device, block, 1);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 1), 0u);
}

TEST_F(SoftBlocksTest, ABlockThatNobodyWroteKeepsItsCopy) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 1), 0u);
  EXPECT_TRUE(HasCopy(device, block));
  const uint64_t spilled = device->Stats().spilled_bytes;
  Evict(device, block);
  EXPECT_EQ(device->Stats().spilled_bytes, spilled);
  EXPECT_EQ(WrongUnnamed(device, block, 1), 0u);
  EXPECT_EQ(Read(device, block, 1), 0u);
}

TEST_F(SoftBlocksTest, AnUnnamedWriteOnTheWayOutIsNotLost) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  {
    StopAt stop("evictor.copied");
    StartEviction(device, block);
    stop.WaitUntilReached();
    CoreDevice::Fill(block, kBlock, 2);
  }
  AwaitTakenBack(device, 1);
  EXPECT_EQ(Read(device, block, 2), 0u);
  Evict(device, block);  // it may leave the next time
  EXPECT_EQ(Read(device, block, 2), 0u);
}

TEST_F(SoftBlocksTest, AFreedBlockGivesHostMemoryAndAddressBack) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  ASSERT_TRUE(device->Free(block).ok());
  EXPECT_EQ(device.MustAllocate(kBlock), block);
  EXPECT_EQ(device.host().storage_in_use(), 0u);
  Write(device, block, 2);
  EXPECT_EQ(Read(device, block, 2), 0u);
  device->CheckInvariants();
}

// What waits for its address may be what its stream waits for.
TEST_F(SoftBlocksTest, AnAllocationGetsAnAddressWhoseStreamWaitsForTheAllocation) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  const CUdeviceptr other = Filled(device, 2);
  Evict(device, block);
  std::atomic<bool> allocated{false};
  EXPECT_EQ(device.Launch(nullptr, {other},
                          [&](const auto&) {
                            while (!allocated.load()) std::this_thread::yield();
                          }),
            CUDA_SUCCESS);
  ASSERT_TRUE(device->Free(block).ok());
  EXPECT_EQ(device.MustAllocate(kBlock), block);
  allocated = true;
  Write(device, block, 3);
  EXPECT_EQ(Read(device, block, 3), 0u);
}

TEST_F(SoftBlocksTest, BlocksThatAreNotToGoOnToTheDiskStayMapped) {
  setup_.disk = true;
  setup_.host_bytes = 4 * kBlock;
  setup_.idle_nanos = 1;
  CoreDevice device(setup_);
  AwaitHash(device);
  for (uint64_t version = 1; version <= 4; ++version) Evict(device, Filled(device, version));
  ASSERT_TRUE(
      tests::WaitUntil([&] { return device->Stats().disk_tier_bytes > 0 && device->demoter()->idle(); }));
  EXPECT_GE(device->Stats().soft_now_bytes, 2 * kBlock);
  device->CheckInvariants();
}

TEST_F(SoftBlocksTest, BytesThatGoToTheDiskAreNotMappedAnyMore) {
  setup_.disk = true;
  setup_.host_bytes = 2 * kBlock;
  setup_.idle_nanos = 1;
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  WriteUnnamed(device, block, 2);
  const CUdeviceptr other = Filled(device, 3);
  Evict(device, other);
  ASSERT_TRUE(tests::WaitUntil([&] { return device->Stats().disk_tier_bytes > 0; }));
  EXPECT_EQ(Read(device, block, 2), 0u);
  EXPECT_EQ(Read(device, other, 3), 0u);
  device->CheckInvariants();
}

TEST_F(SoftBlocksTest, APauseDropsWhatIsMapped) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const auto address = device->Allocate(kBlock, {nullptr, false}, BlockRegion{1, false});
  ASSERT_TRUE(address.ok());
  Write(device, *address, 1);
  Evict(device, *address);
  PauseStats stats;
  ASSERT_TRUE(device->Pause({}, &stats).ok());
  EXPECT_EQ(stats.dropped_bytes, kBlock);
  EXPECT_EQ(device.host().storage_in_use(), 0u);
  ASSERT_TRUE(device->Resume({}, /*wait=*/true).ok());
  Write(device, *address, 2);
  EXPECT_EQ(Read(device, *address, 2), 0u);
}

// Nothing else is a reason to fail.
TEST_F(SoftBlocksTest, AMappingThatIsRefusedLeavesABlockSpilledAsAnyOther) {
  CudaDriver driver = *CoreDevice::Driver();
  static std::atomic<bool> refuses;
  refuses = false;
  driver.cuMemMap = [](CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags) {
    if (refuses.load()) return CUDA_ERROR_OUT_OF_MEMORY;
    return CoreDevice::Driver()->cuMemMap(address, size, offset, handle, flags);
  };
  setup_.driver = &driver;
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  refuses = true;
  Evict(device, block);
  refuses = false;
  EXPECT_EQ(device->Stats().soft_now_bytes, 0u);
  EXPECT_EQ(Read(device, block, 1), 0u);
  device->CheckInvariants();
}

TEST_F(SoftBlocksTest, NothingStaysMappedWhereThatIsNotAskedFor) {
  setup_.soft = false;
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(device->Stats().soft_now_bytes, 0u);
  EXPECT_EQ(device->Stats().soft_evictions, 0u);
  EXPECT_EQ(Read(device, block, 1), 0u);
}

}  // namespace
}  // namespace spillway::allocator
