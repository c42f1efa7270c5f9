// Kernels that write a block by an address that no launch shows, while it is on its way off the GPU: its
// bytes must not be lost, and from then on it stays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/allocator/copy_helpers.h"

namespace spillway::allocator {
namespace {

// What such a kernel leaves behind: it ran past the gate and has ended.
void WriteUnseen(CUdeviceptr block, uint64_t version) { CoreDevice::Fill(block, kBlock, version); }

void EvictWithUnseenWrite(CoreDevice& device, CUdeviceptr block, uint64_t version) {
  const uint64_t ended = device->Stats().evictions + device->Stats().evictions_cancelled;
  {
    StopAt stop("evictor.copied");
    StartEviction(device, block);
    stop.WaitUntilReached();
    WriteUnseen(block, version);
  }
  ASSERT_TRUE(tests::WaitUntil(
      [&] { return device->Stats().evictions + device->Stats().evictions_cancelled > ended; }));
}

// So many evictions in a row, each of a block that a launch has changed before. Returns the last version.
uint64_t EvictChanged(CoreDevice& device, CUdeviceptr block, int times) {
  uint64_t version = 1;
  for (int round = 0; round < times; ++round) {
    Write(device, block, ++version);
    Evict(device, block);
    EXPECT_EQ(Read(device, block, version), 0u);
  }
  return version;
}

bool IsPinned(CoreDevice& device, CUdeviceptr block) {
  const TableLock lock(device->core()->table);
  return (BlockAt(device, block)->pin_reasons & 1u << static_cast<int>(PinReason::kUnseenWrite)) != 0;
}

class UnseenWritesTest : public testing::TestWithParam<uint64_t> {};  // bytes of the host tier; 0: the disk

TEST_P(UnseenWritesTest, ABlockThatIsWrittenOnItsWayOutStays) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code, GetParam()));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  testing::internal::CaptureStderr();
  EvictWithUnseenWrite(device, block, 2);
  EXPECT_EQ(StateOf(device, block), BlockState::kResident);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("that was on its way off the GPU, and no launch had named it"));
  EXPECT_EQ(Read(device, block, 2), 0u);
  EXPECT_TRUE(IsPinned(device, block));
  EXPECT_FALSE(HasCopy(device, block));
  const ResidencyStats stats = device->Stats();
  EXPECT_EQ(stats.unseen_writes, 1u);
  EXPECT_EQ(stats.pinned_bytes, kBlock);
  EXPECT_EQ(
      std::accumulate(stats.pinned_bytes_by_reason.begin(), stats.pinned_bytes_by_reason.end(), uint64_t{0}),
      kBlock);
  EXPECT_EQ(device.host().storage_in_use(), 0u);
  device->CheckInvariants();
}

INSTANTIATE_TEST_SUITE_P(HostAndDisk, UnseenWritesTest, testing::Values(4 << 20, 0),
                         [](const auto& named) { return named.param == 0 ? "Disk" : "Host"; });

// Equal iterations give a tensor the same address again.
TEST(UnseenWritesTest, TheNextBlockAtThatAddressStaysFromTheStart) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  EvictWithUnseenWrite(device, block, 2);
  for (const bool mapped : {true, false}) {
    ASSERT_TRUE(device->Free(block).ok());
    device.Synchronize();
    const absl::Status emptied = mapped ? absl::OkStatus() : device->EmptyCache();
    EXPECT_TRUE(emptied.ok());
    const CUdeviceptr again = device.MustAllocate(kBlock);
    ASSERT_EQ(again, block);
    EXPECT_TRUE(IsPinned(device, again));
    device->CheckInvariants();
    Write(device, again, 3);
    EXPECT_EQ(Read(device, again, 3), 0u);
    device->CheckInvariants();
  }
}

// Nobody asked whether there is memory for these pins.
TEST(UnseenWritesTest, ALaunchThatDoesNotFitBesideThemIsRefused) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code, 8 << 20));
  AwaitHash(device);
  device->OnExternalBytes(kChunk);  // its share is in use
  const CUdeviceptr one = Filled(device, 1), two = Filled(device, 1);
  for (int i = 0; i < 6; ++i) EvictWithUnseenWrite(device, Filled(device, 1), 2);
  EXPECT_EQ(device->Stats().unseen_writes, 6u);
  EXPECT_EQ(device.Launch(nullptr, {one, two}, [](const auto&) {}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Read(device, one, 1), 0u);
  EXPECT_EQ(Read(device, two, 1), 0u);
  device->CheckInvariants();
}

TEST(UnseenWritesTest, TheFirstEvictionsOfAnAddressAreAllVerified) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  uint64_t version = EvictChanged(device, block, CopyBackoff::kFirstVerified - 1);
  EXPECT_EQ(device->Stats().verified_evictions, CopyBackoff::kFirstVerified - 1);
  EXPECT_EQ(device->Stats().unseen_writes, 0u);
  Write(device, block, ++version);
  EvictWithUnseenWrite(device, block, version + 1);
  EXPECT_EQ(device->Stats().unseen_writes, 1u);
  EXPECT_EQ(Read(device, block, version + 1), 0u);
}

TEST(UnseenWritesTest, EveryEvictionIsVerifiedWhereThatIsAskedFor) {
  FixedHashCode code;
  CoreSetup setup = SetupWith(&code);
  setup.verify_always = true;
  CoreDevice device(setup);
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  uint64_t version = EvictChanged(device, block, CopyBackoff::kFirstVerified + 2);
  EXPECT_EQ(device->Stats().verified_evictions, CopyBackoff::kFirstVerified + 2);
  Write(device, block, ++version);
  EvictWithUnseenWrite(device, block, version + 1);
  EXPECT_EQ(device->Stats().unseen_writes, 1u);
  EXPECT_EQ(Read(device, block, version + 1), 0u);
}

// A launch that takes the block back writes it in plain sight.
TEST(UnseenWritesTest, ALaunchDuringTheVerificationIsNone) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  uint64_t taken_back = 0;
  for (const char* point : {"evictor.verifying", "evictor.verified"}) {
    {
      StopAt stop(point);
      StartEviction(device, block);
      stop.WaitUntilReached();
      Write(device, block, 2);
    }
    EXPECT_EQ(Read(device, block, 2), 0u);
    ++taken_back;
    AwaitTakenBack(device, taken_back);
  }
  EXPECT_EQ(device->Stats().unseen_writes, 0u);
  EXPECT_FALSE(IsPinned(device, block));
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 2), 0u);
  device->CheckInvariants();
}

TEST(UnseenWritesTest, AFreeDuringTheVerificationGivesEverythingBack) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  {
    StopAt stop("evictor.verifying");
    StartEviction(device, block);
    stop.WaitUntilReached();
    WriteUnseen(block, 2);
    ASSERT_TRUE(device->Free(block).ok());
  }
  WaitForState(device, block, BlockState::kCached);
  device.Synchronize();
  EXPECT_EQ(device.host().storage_in_use(), 0u);
  EXPECT_EQ(device->Stats().unseen_writes, 0u);
  device->CheckInvariants();
}

// What is not kept for the next eviction is verified all the same.
TEST(UnseenWritesTest, AVerifiedCopyThatNobodyWantsIsNotKept) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 1), 0u);
  EXPECT_TRUE(HasCopy(device, block));
  Write(device, block, 2);
  Evict(device, block);  // the copy was of no use
  EXPECT_EQ(Read(device, block, 2), 0u);
  EXPECT_FALSE(HasCopy(device, block));
  EXPECT_EQ(device->Stats().verified_evictions, 2u);
}

}  // namespace
}  // namespace spillway::allocator
