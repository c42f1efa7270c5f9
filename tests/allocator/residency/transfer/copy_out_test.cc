// Copies off the GPU that are kept while the block is on it: what is unchanged is dropped without a transfer,
// what has changed is written again, whatever was believed of it.

#include "allocator/residency/transfer/copy_out.h"

#include <gtest/gtest.h>

#include "tests/allocator/copy_helpers.h"

namespace spillway::allocator {
namespace {

TEST(CopyOutTest, AnUnchangedBlockIsWrittenOnce) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 7);
  Evict(device, block);
  EXPECT_EQ(device->Stats().spilled_bytes, kBlock);
  for (uint64_t round = 1; round <= 5; ++round) {
    EXPECT_EQ(Read(device, block, 7), 0u);
    EXPECT_EQ(device->Stats().clean_copy_bytes, kBlock);
    Evict(device, block);
    const ResidencyStats stats = device->Stats();
    EXPECT_EQ(stats.spilled_bytes, kBlock);
    EXPECT_EQ(stats.clean_drops, round);
    EXPECT_EQ(stats.clean_drop_bytes, round * kBlock);
    EXPECT_EQ(stats.clean_copy_bytes, 0u);
  }
  EXPECT_EQ(device->Stats().hash_mismatches, 0u);
  EXPECT_EQ(Read(device, block, 7), 0u);
  device->CheckInvariants();
}

// Learnt to be read only by all rounds before, then written by the same kind of launch.
TEST(CopyOutTest, ABlockThatWasOnlyReadUntilNowIsWrittenAgainOnceItChanges) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(Read(device, block, 1), 0u);
    Evict(device, block);
  }
  EXPECT_EQ(device->Stats().spilled_bytes, kBlock);
  EXPECT_EQ(Read(device, block, 1), 0u);
  Write(device, block, 2);
  Evict(device, block);
  const ResidencyStats stats = device->Stats();
  EXPECT_EQ(stats.hash_mismatches, 1u);
  EXPECT_EQ(stats.clean_drops, 3u);
  EXPECT_EQ(stats.spilled_bytes, 2 * kBlock);
  EXPECT_EQ(Read(device, block, 2), 0u);
}

TEST(CopyOutTest, OneChangedWordIsSeen) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 1), 0u);
  // Between the words that Differences looks at.
  const auto touch = [](const auto& a) { *reinterpret_cast<uint64_t*>(a[0] + 4096 * 3 + 64) = 1; };
  EXPECT_EQ(device.Launch(nullptr, {block}, touch), CUDA_SUCCESS);
  Evict(device, block);
  EXPECT_EQ(device->Stats().hash_mismatches, 1u);
  uint64_t word = 0;
  EXPECT_EQ(device.Launch(nullptr, {block},
                          [&](const auto& a) { word = *reinterpret_cast<uint64_t*>(a[0] + 4096 * 3 + 64); }),
            CUDA_SUCCESS);
  device.Synchronize();
  EXPECT_EQ(word, 1u);
}

TEST(CopyOutTest, OnDiskToo) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code, 0));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 3);
  Evict(device, block);
  const uint64_t written = device.disk()->stats().bytes_written;
  EXPECT_EQ(written, kBlock);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(Read(device, block, 3), 0u);
    Evict(device, block);
  }
  EXPECT_EQ(device.disk()->stats().bytes_written, written);
  EXPECT_EQ(device->Stats().clean_drops, 3u);
  EXPECT_EQ(Read(device, block, 3), 0u);
}

// Loading a module may keep every call of the process waiting until the GPU is idle: not once blocks move.
TEST(CopyOutTest, TheHashIsLoadedBeforeAnythingLeaves) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  EXPECT_EQ(device->Stats().evictions, 0u);
}

TEST(CopyOutTest, WithoutAHashEveryEvictionWrites) {
  FixedHashCode missing("");
  for (HashCode* code : {static_cast<HashCode*>(nullptr), static_cast<HashCode*>(&missing)}) {
    CoreDevice device(SetupWith(code));
    device->hash()->Stop();
    const CUdeviceptr block = Filled(device, 4);
    for (uint64_t round = 1; round <= 3; ++round) {
      Evict(device, block);
      EXPECT_EQ(device->Stats().spilled_bytes, round * kBlock);
      EXPECT_EQ(Read(device, block, 4), 0u);
      EXPECT_EQ(device->Stats().clean_copy_bytes, 0u);
    }
    EXPECT_EQ(device->Stats().clean_drops, 0u);
  }
}

TEST(CopyOutTest, AHashThatCannotBeLaunchedCostsAWrite) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 5);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 5), 0u);
  // All places for results are taken.
  DeviceHash* const hash = device->hash()->Get();
  std::vector<DeviceHash::Request> requests;
  for (;;) {
    auto request = hash->Enqueue(hash->stream(), block, 4096);
    if (!request.ok()) break;
    requests.push_back(*request);
  }
  ASSERT_FALSE(requests.empty());
  device.Synchronize();  // done, and the places still taken
  Evict(device, block);
  EXPECT_EQ(device->Stats().spilled_bytes, 2 * kBlock);
  EXPECT_EQ(device->Stats().clean_drops, 0u);
  for (DeviceHash::Request& request : requests) hash->Drop(&request);
  EXPECT_EQ(Read(device, block, 5), 0u);
}

TEST(CopyOutTest, CopiesAreGivenUpWhenTheTierNeedsTheCapacity) {
  FixedHashCode code;
  CoreSetup setup = SetupWith(&code, 2 * kBlock);
  setup.disk = false;
  CoreDevice device(setup);
  AwaitHash(device);
  const CUdeviceptr kept = Filled(device, 1);
  const CUdeviceptr second = Filled(device, 2);
  const CUdeviceptr third = Filled(device, 3);
  Evict(device, kept);
  EXPECT_EQ(Read(device, kept, 1), 0u);
  ASSERT_TRUE(HasCopy(device, kept));
  Evict(device, second);
  EXPECT_TRUE(HasCopy(device, kept));  // both fit the tier
  Evict(device, third);
  EXPECT_FALSE(HasCopy(device, kept));
  EXPECT_EQ(Read(device, second, 2), 0u);
  Evict(device, kept);  // into the capacity of second's copy
  EXPECT_EQ(device->Stats().spilled_bytes, 4 * kBlock);
  EXPECT_EQ(Read(device, kept, 1), 0u);
  EXPECT_EQ(Read(device, third, 3), 0u);
  device->CheckInvariants();
}

TEST(CopyOutTest, AnotherDevicesNeedEndsThem) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 1), 0u);
  ASSERT_TRUE(HasCopy(device, block));
  const uint64_t before = device.host().storage_in_use();
  device->charges()->capacity()->AskForCopies();
  device->thread()->Wake();
  EXPECT_TRUE(tests::WaitUntil([&] { return !HasCopy(device, block); }));
  EXPECT_EQ(device.host().storage_in_use(), before - kBlock);
}

TEST(CopyOutTest, AFreeEndsTheCopy) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 1), 0u);
  ASSERT_TRUE(device->Free(block).ok());
  EXPECT_EQ(device->Stats().clean_copy_bytes, 0u);
  EXPECT_EQ(device.host().storage_in_use(), 0u);
  // The next owner of the address has nothing of it.
  const CUdeviceptr again = Filled(device, 2);
  EXPECT_EQ(again, block);
  Evict(device, again);
  EXPECT_EQ(Read(device, again, 2), 0u);
  EXPECT_EQ(device->Stats().clean_drops, 0u);
  device->CheckInvariants();
}

TEST(CopyOutTest, AFreeDuringTheComparisonGivesEverythingBack) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 1), 0u);
  {
    StopAt stop("evictor.comparing");
    StartEviction(device, block);
    stop.WaitUntilReached();
    ASSERT_TRUE(device->Free(block).ok());
  }
  WaitForState(device, block, BlockState::kCached);
  device.Synchronize();
  EXPECT_EQ(device.host().storage_in_use(), 0u);
  EXPECT_EQ(device->Stats().live_bytes, 0u);
  device->CheckInvariants();
}

TEST(CopyOutTest, ALaunchDuringTheComparisonTakesItBackAndKeepsTheCopy) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 1), 0u);
  for (const char* point : {"evictor.comparing", "evictor.compared", "evictor.before_commit"}) {
    {
      StopAt stop(point);
      StartEviction(device, block);
      stop.WaitUntilReached();
      EXPECT_EQ(Wrong(device, block, 1), 0u);
      EXPECT_EQ(StateOf(device, block), BlockState::kResident);
    }
    SCOPED_TRACE(point);
    AwaitCopy(device, block);
  }
  EXPECT_EQ(device->Stats().evictions_cancelled, 3u);
  // And one that writes.
  {
    StopAt stop("evictor.comparing");
    StartEviction(device, block);
    stop.WaitUntilReached();
    Write(device, block, 2);
  }
  AwaitCopy(device, block);
  Evict(device, block);
  EXPECT_EQ(device->Stats().hash_mismatches, 1u);
  EXPECT_EQ(Read(device, block, 2), 0u);
}

}  // namespace
}  // namespace spillway::allocator
