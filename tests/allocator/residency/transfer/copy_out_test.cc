// Copies off the GPU that are kept while the block is on it: what is unchanged is dropped without a transfer, what has
// changed is written again, whatever was believed of it.

#include "allocator/residency/transfer/copy_out.h"

#include <gtest/gtest.h>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

CoreSetup SetupWith(HashCode* code, uint64_t host_bytes = 4 << 20) {
  CoreSetup setup;
  setup.host_bytes = host_bytes;
  setup.hash_code = code;
  return setup;
}

// Loads the hash now; else the first eviction would begin it.
void AwaitHash(CoreDevice& device) {
  device->hash()->Begin();
  for (int i = 0; i < 50'000 && device->hash()->Get() == nullptr; ++i) usleep(200);
  ASSERT_NE(device->hash()->Get(), nullptr);
}

void Evict(CoreDevice& device, CUdeviceptr block) {
  StartEviction(device, block);
  WaitForState(device, block, BlockState::kSpilled);
}

// Brings it back by a kernel that reads it; returns how many words were wrong.
uint64_t Read(CoreDevice& device, CUdeviceptr block, uint64_t version) {
  const uint64_t wrong = Wrong(device, block, version);
  WaitForState(device, block, BlockState::kResident);
  return wrong;
}

void Write(CoreDevice& device, CUdeviceptr block, uint64_t version) {
  EXPECT_EQ(device.Launch(nullptr, {block}, [=](const auto& a) { CoreDevice::Fill(a[0], kBlock, version); }),
            CUDA_SUCCESS);
  device.Synchronize();
}

bool HasCopy(CoreDevice& device, CUdeviceptr address) {
  Core* const core = device->core();
  const TableLock lock(core->table);
  return !BlockAt(device, address)->copies.copy_homes.empty();
}

TEST(CleanCopiesTest, AnUnchangedBlockIsWrittenOnce) {
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
TEST(CleanCopiesTest, ABlockThatWasOnlyReadUntilNowIsWrittenAgainOnceItChanges) {
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

TEST(CleanCopiesTest, OneChangedWordIsSeen) {
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

TEST(CleanCopiesTest, OnDiskToo) {
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

TEST(CleanCopiesTest, WithoutAHashEveryEvictionWrites) {
  FixedHashCode missing("");
  for (HashCode* code : {static_cast<HashCode*>(nullptr), static_cast<HashCode*>(&missing)}) {
    CoreDevice device(SetupWith(code));
    device->hash()->Begin();
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

TEST(CleanCopiesTest, AHashThatCannotBeLaunchedCostsAWrite) {
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

TEST(CleanCopiesTest, CopiesAreGivenUpWhenTheTierNeedsTheRoom) {
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
  EXPECT_TRUE(HasCopy(device, kept));  // there was room beside it
  Evict(device, third);
  EXPECT_FALSE(HasCopy(device, kept));
  EXPECT_EQ(Read(device, second, 2), 0u);
  Evict(device, kept);  // in the room of second's copy
  EXPECT_EQ(device->Stats().spilled_bytes, 4 * kBlock);
  EXPECT_EQ(Read(device, kept, 1), 0u);
  EXPECT_EQ(Read(device, third, 3), 0u);
  device->CheckInvariants();
}

TEST(CleanCopiesTest, AnotherDevicesNeedEndsThem) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 1), 0u);
  ASSERT_TRUE(HasCopy(device, block));
  const uint64_t before = device.host().storage_in_use();
  device->charges()->room()->AskForCopies();
  device->thread()->Wake();
  for (int i = 0; i < 20'000 && HasCopy(device, block); ++i) usleep(200);
  EXPECT_FALSE(HasCopy(device, block));
  EXPECT_EQ(device.host().storage_in_use(), before - kBlock);
}

TEST(CleanCopiesTest, AFreeEndsTheCopy) {
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

TEST(CleanCopiesTest, AFreeDuringTheComparisonGivesEverythingBack) {
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

TEST(CleanCopiesTest, ALaunchDuringTheComparisonTakesItBackAndKeepsTheCopy) {
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
    for (int i = 0; i < 20'000 && !HasCopy(device, block); ++i) usleep(200);
    EXPECT_TRUE(HasCopy(device, block)) << point;
  }
  EXPECT_EQ(device->Stats().evictions_cancelled, 3u);
  // And one that writes.
  {
    StopAt stop("evictor.comparing");
    StartEviction(device, block);
    stop.WaitUntilReached();
    Write(device, block, 2);
  }
  for (int i = 0; i < 20'000 && !HasCopy(device, block); ++i) usleep(200);
  Evict(device, block);
  EXPECT_EQ(device->Stats().hash_mismatches, 1u);
  EXPECT_EQ(Read(device, block, 2), 0u);
}

// ---- Copies ahead of the drop.

void CopyOut(CoreDevice& device, CUdeviceptr block) {
  {
    const TableLock lock(device->core()->table);
    ASSERT_TRUE(device->evictor()->CopyOutLocked(lock, BlockAt(device, block), policy::PlanTier::kHost));
  }
  device->thread()->Wake();
}

TEST(CleanCopiesTest, WrittenEarlyAndDroppedClean) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  CopyOut(device, block);
  for (int i = 0; i < 20'000 && !HasCopy(device, block); ++i) usleep(200);
  ASSERT_TRUE(HasCopy(device, block));
  EXPECT_EQ(StateOf(device, block), BlockState::kResident);
  EXPECT_EQ(Wrong(device, block, 1), 0u);  // still read where it lies
  EXPECT_EQ(device->Stats().fetched_bytes, 0u);
  EXPECT_EQ(device->Stats().early_copies, 1u);
  Evict(device, block);
  EXPECT_EQ(device->Stats().spilled_bytes, kBlock);
  EXPECT_EQ(device->Stats().clean_drops, 1u);
  EXPECT_EQ(Read(device, block, 1), 0u);
  // Again, while the copy is good: nothing is moved.
  CopyOut(device, block);
  for (int i = 0; i < 20'000 && device->Stats().early_copies < 2; ++i) usleep(200);
  EXPECT_EQ(device->Stats().spilled_bytes, kBlock);
  device->CheckInvariants();
}

TEST(CleanCopiesTest, AnEarlyCopyOfWhatIsWrittenLaterIsNoUse) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  CopyOut(device, block);
  for (int i = 0; i < 20'000 && !HasCopy(device, block); ++i) usleep(200);
  Write(device, block, 2);
  Evict(device, block);
  EXPECT_EQ(device->Stats().hash_mismatches, 1u);
  EXPECT_EQ(device->Stats().spilled_bytes, 2 * kBlock);
  EXPECT_EQ(Read(device, block, 2), 0u);
}

TEST(CleanCopiesTest, ALaunchTakesAnEarlyCopyBack) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  {
    StopAt stop("evictor.before_commit");
    CopyOut(device, block);
    stop.WaitUntilReached();
    Write(device, block, 2);
  }
  device.Synchronize();
  for (int i = 0; i < 20'000 && device->Stats().evictions_cancelled == 0; ++i) usleep(200);
  EXPECT_EQ(device->Stats().early_copies, 0u);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 2), 0u);
  device->CheckInvariants();
}

// ---- A block that is taken back between its copy and its hash. The copy is of version 1, the hash of version 2: kept
// together, the next eviction would call the block unchanged and drop version 2.

class TakenBackTest : public testing::TestWithParam<bool> {};

TEST_P(TakenBackTest, KeepsNoCopyWithAHashOfOtherBytes) {
  const bool early = GetParam();
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  // The hash waits on its stream, so that the copy is there long before it.
  std::atomic<bool> hash_may_go{false};
  const CUstream hash_stream = device->hash()->Get()->stream();
  const CUdeviceptr other = device.MustAllocate(kBlock);
  ASSERT_EQ(device.Launch(hash_stream, {other},
                          [&](const auto&) {
                            while (!hash_may_go.load()) usleep(100);
                          }),
            CUDA_SUCCESS);
  if (early) {
    CopyOut(device, block);
  } else {
    StartEviction(device, block);
  }
  usleep(20'000);
  {
    StopAt stop("evictor.looked");
    device->thread()->Wake();
    stop.WaitUntilReached();
    EXPECT_EQ(device.Launch(nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], kBlock, 2); }),
              CUDA_SUCCESS);
    ASSERT_EQ(CoreDevice::Driver()->cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    hash_may_go.store(true);
    device.Synchronize();
  }
  for (int i = 0; i < 20'000 && device->Stats().evictions_cancelled == 0; ++i) usleep(200);
  EXPECT_FALSE(HasCopy(device, block));
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 2), 0u);
  device->CheckInvariants();
}

INSTANTIATE_TEST_SUITE_P(EvictionsAndEarlyCopies, TakenBackTest, testing::Bool(),
                         [](const auto& named) { return named.param ? "EarlyCopy" : "Eviction"; });

}  // namespace
}  // namespace spillway::allocator
