// What comes back is compared with what had left: flips on the link, in staging, in host memory and on the
// disk are found before a launch has the block.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "allocator/residency/transfer/faulter.h"
#include "tests/allocator/copy_helpers.h"
#include "tests/fakes/faulty_engine.h"

namespace spillway::allocator {
namespace {

using testing::HasSubstr;

// Copies to the GPU, of which the n-th from now on brings a wrong bit; 0: none.
std::atomic<int> flip_copy_in{0};

CUresult FlippingCopyIn(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  if (flip_copy_in.load() == 0 || flip_copy_in.fetch_sub(1) != 1)
    return CoreDevice::Driver()->cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
  std::vector<std::byte> wrong(bytes);
  std::memcpy(wrong.data(), from, bytes);
  wrong[bytes / 2] ^= std::byte{4};
  const CUresult result = CoreDevice::Driver()->cuMemcpyHtoDAsync_v2(to, wrong.data(), bytes, stream);
  CoreDevice::Driver()->cuStreamSynchronize(stream);  // `wrong` goes
  return result;
}

class ArrivalCheckTest : public testing::Test {
 protected:
  ArrivalCheckTest() {
    flip_copy_in = 0;
    driver_ = *CoreDevice::Driver();
    driver_.cuMemcpyHtoDAsync_v2 = &FlippingCopyIn;
    setup_ = SetupWith(&code_);
    setup_.driver = &driver_;
    setup_.verify_arrivals = true;
  }

  // A bit of what lies in host memory.
  static void FlipAtHome(CoreDevice& device, CUdeviceptr block) {
    const TableLock lock(device->core()->table);
    BlockAt(device, block)->copies.homes[3].buffer.data[77] ^= std::byte{1};
  }
  static CUresult Launch(CoreDevice& device, CUdeviceptr block) {
    return device.Launch(nullptr, {block}, [](const auto&) {});
  }
  void OnDiskAlone() {
    setup_.host_bytes = 0;
    setup_.checksum = io::ChecksumMode::kOff;
  }
  void DiskFlips(io::IoOp op, uint64_t first, uint64_t count) {
    setup_.wrap_engine = [=](std::unique_ptr<io::IoEngine> engine, size_t) {
      io::FaultPlan plan;
      plan.faults.push_back({.kind = io::FaultKind::kBitFlip, .op = op, .first = first, .count = count});
      return io::MakeFaultyEngine(std::move(engine), plan);
    };
  }

  CudaDriver driver_;
  FixedHashCode code_;
  CoreSetup setup_;
};

TEST_F(ArrivalCheckTest, WhatIsRightIsComparedAndComesBack) {
  for (const uint64_t host_bytes : {uint64_t{4} << 20, uint64_t{0}}) {
    setup_.host_bytes = host_bytes;
    CoreDevice device(setup_);
    AwaitHash(device);
    const CUdeviceptr block = Filled(device, 1);
    Evict(device, block);
    EXPECT_EQ(Read(device, block, 1), 0u);
    EXPECT_EQ(device->Stats().verified_fetches, 1u);
    EXPECT_EQ(device->Stats().wrong_arrivals, 0u);
    device->CheckInvariants();
  }
}

TEST_F(ArrivalCheckTest, AFlipOnTheLinkIsFetchedAgain) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  flip_copy_in = 1;
  testing::internal::CaptureStderr();
  EXPECT_EQ(Read(device, block, 1), 0u);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("arrived on the GPU with wrong bytes, and with the right ones when it was copied again"));
  EXPECT_EQ(device->Stats().wrong_arrivals, 1u);
  EXPECT_EQ(device->Stats().verified_fetches, 2u);
  device->CheckInvariants();
}

TEST_F(ArrivalCheckTest, WithoutItAFlipGoesOnToTheKernel) {
  setup_.verify_arrivals = false;
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  flip_copy_in = 1;
  EXPECT_GT(Read(device, block, 1), 0u);
  EXPECT_EQ(device->Stats().verified_fetches, 0u);
}

TEST_F(ArrivalCheckTest, AFlipInHostMemoryRefusesTheLaunchAndNoOther) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  const CUdeviceptr other = Filled(device, 2);
  Evict(device, block);
  FlipAtHome(device, block);
  EXPECT_EQ(Launch(device, block), CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_THAT(device->LastError(), HasSubstr("cannot be read back, and there is no other copy"));
  EXPECT_THAT(device->LastError(),
              HasSubstr("What comes back is not what had left, twice: it has changed in host memory"));
  EXPECT_EQ(device->Stats().wrong_arrivals, 2u);
  WaitForState(device, block, BlockState::kSpilled);
  EXPECT_EQ(Wrong(device, other, 2), 0u);
  FlipAtHome(device, block);  // right again
  EXPECT_EQ(Read(device, block, 1), 0u);
  device->CheckInvariants();
}

TEST_F(ArrivalCheckTest, AFlipOnTheWayFromTheDiskIsReadAgain) {
  OnDiskAlone();
  DiskFlips(io::IoOp::kRead, 2, 1);  // the first is the probe's
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 1), 0u);
  EXPECT_EQ(device->Stats().wrong_arrivals, 1u);
  device->CheckInvariants();
}

TEST_F(ArrivalCheckTest, AFlipOnTheDiskRefusesTheLaunch) {
  OnDiskAlone();
  DiskFlips(io::IoOp::kWrite, 3, 1);
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(Launch(device, block), CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_THAT(device->LastError(), HasSubstr("it has changed on the disk, or on its way there"));
  EXPECT_TRUE(device->Free(block).ok());
  EXPECT_EQ(device.disk()->stats().slots_in_use, 0u);
  EXPECT_EQ(device.host().Free(HostUse::kFaultStaging), 8u);
  device->CheckInvariants();
}

// The hash alone is no reason to keep a copy of a block that changes each time.
TEST_F(ArrivalCheckTest, CopiesThatAreOfNoUseAreNotKept) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  int kept = 0;
  constexpr uint64_t kRounds = 20;
  for (uint64_t version = 1; version <= kRounds; ++version) {
    Write(device, block, version);
    Evict(device, block);
    ASSERT_EQ(Read(device, block, version), 0u) << version;
    kept += HasCopy(device, block) ? 1 : 0;
  }
  EXPECT_LT(kept, 6);
  EXPECT_EQ(device->Stats().verified_fetches, kRounds);
  device->CheckInvariants();
}

TEST_F(ArrivalCheckTest, AFetchIsTakenBackWhileItIsCompared) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  {
    StopAt stop("faulter.compares");
    StartPrefetch(device, block);
    stop.WaitUntilReached();
    {
      const TableLock lock(device->core()->table);
      Faulter::CancelLocked(lock, BlockAt(device, block));
    }
    stop.Release();
  }
  // It was whole already.
  WaitForState(device, block, BlockState::kResident);
  EXPECT_EQ(Read(device, block, 1), 0u);
  device->CheckInvariants();
}

TEST_F(ArrivalCheckTest, ABlockThatIsFreedWhileItIsComparedIsGivenBack) {
  for (const bool flipped : {false, true}) {
    CoreDevice device(setup_);
    AwaitHash(device);
    const CUdeviceptr block = Filled(device, 1);
    Evict(device, block);
    if (flipped) FlipAtHome(device, block);
    {
      StopAt stop("faulter.compares");
      StartPrefetch(device, block);
      stop.WaitUntilReached();
      ASSERT_TRUE(device->Free(block).ok());
      stop.Release();
    }
    EXPECT_EQ(device.MustAllocate(kBlock), block);
    EXPECT_EQ(device.host().storage_in_use(), 0u);
    ASSERT_TRUE(device->Free(block).ok());
    device->CheckInvariants();
  }
}

TEST_F(ArrivalCheckTest, WithoutAHashBlocksComeBackUncompared) {
  FixedHashCode none("");
  setup_.hash_code = &none;
  CoreDevice device(setup_);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 1), 0u);
  EXPECT_EQ(device->Stats().verified_fetches, 0u);
}

TEST_F(ArrivalCheckTest, LaunchesWaitForTheComparison) {
  CoreDevice device(setup_);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  std::atomic<bool> launched{false};
  std::thread launcher;
  {
    StopAt stop("faulter.compares");
    launcher = std::thread([&] {
      CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
      EXPECT_EQ(Launch(device, block), CUDA_SUCCESS);
      launched = true;
    });
    stop.WaitUntilReached();
    EXPECT_FALSE(launched.load());
    stop.Release();
  }
  launcher.join();
  EXPECT_EQ(Read(device, block, 1), 0u);
  device->CheckInvariants();
}

}  // namespace
}  // namespace spillway::allocator
