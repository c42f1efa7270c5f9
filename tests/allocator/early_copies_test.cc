// Copies ahead of the drop: a block is copied out where it lies, and its later eviction moves nothing. And
// blocks that are taken back between their copy and their hash.

#include <gtest/gtest.h>

#include "tests/allocator/copy_helpers.h"
#include "tests/fakes/gate.h"

namespace spillway::allocator {
namespace {

void CopyOut(CoreDevice& device, CUdeviceptr block) {
  {
    const TableLock lock(device->core()->table);
    ASSERT_TRUE(device->evictor()->CopyOutLocked(lock, BlockAt(device, block), policy::PlanTier::kHost));
  }
  device->thread()->Wake();
}

TEST(EarlyCopiesTest, WrittenEarlyAndDroppedClean) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  CopyOut(device, block);
  AwaitCopy(device, block);
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
  EXPECT_TRUE(tests::WaitUntil([&] { return device->Stats().early_copies == 2; }));
  EXPECT_EQ(device->Stats().spilled_bytes, kBlock);
  device->CheckInvariants();
}

TEST(EarlyCopiesTest, AnEarlyCopyOfWhatIsWrittenLaterIsNoUse) {
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  CopyOut(device, block);
  AwaitCopy(device, block);
  Write(device, block, 2);
  Evict(device, block);
  EXPECT_EQ(device->Stats().hash_mismatches, 1u);
  EXPECT_EQ(device->Stats().spilled_bytes, 2 * kBlock);
  EXPECT_EQ(Read(device, block, 2), 0u);
}

TEST(EarlyCopiesTest, ALaunchTakesAnEarlyCopyBack) {
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
  AwaitTakenBack(device, 1);
  EXPECT_EQ(device->Stats().early_copies, 0u);
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 2), 0u);
  device->CheckInvariants();
}

// ---- A block that is taken back between its copy and its hash. The copy is of version 1, the hash of
// version 2: kept together, the next eviction would call the block unchanged and drop version 2.

class TakenBackTest : public testing::TestWithParam<bool> {
 protected:
  // Of the one block that is on its way, to the host tier.
  static void AwaitEndOfCopy(CoreDevice& device) {
    ASSERT_TRUE(tests::WaitUntil([&] { return device.host().storage_in_use() == kBlock; }));
    AwaitPolls(device, 1);  // its copy is enqueued by the poll that takes the buffers
    ASSERT_TRUE(tests::WaitUntil([&] { return !device->core()->link.busy(LinkDirection::kOut); }));
  }
};

TEST_P(TakenBackTest, KeepsNoCopyWithAHashOfOtherBytes) {
  const bool early = GetParam();
  FixedHashCode code;
  CoreDevice device(SetupWith(&code));
  AwaitHash(device);
  const CUdeviceptr block = Filled(device, 1);
  // The hash waits on its stream, so that the copy is there long before it.
  tests::Gate hash_may_go;
  const CUstream hash_stream = device->hash()->Get()->stream();
  const CUdeviceptr other = device.MustAllocate(kBlock);
  ASSERT_EQ(device.Launch(hash_stream, {other}, [wait = hash_may_go.Wait()](const auto&) { wait(); }),
            CUDA_SUCCESS);
  if (early) {
    CopyOut(device, block);
  } else {
    StartEviction(device, block);
  }
  AwaitEndOfCopy(device);
  {
    StopAt stop("evictor.looked");
    device->thread()->Wake();
    stop.WaitUntilReached();
    EXPECT_EQ(device.Launch(nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], kBlock, 2); }),
              CUDA_SUCCESS);
    ASSERT_EQ(CoreDevice::Driver()->cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    hash_may_go.Open();
    device.Synchronize();
  }
  AwaitTakenBack(device, 1);
  EXPECT_FALSE(HasCopy(device, block));
  Evict(device, block);
  EXPECT_EQ(Read(device, block, 2), 0u);
  device->CheckInvariants();
}

INSTANTIATE_TEST_SUITE_P(EvictionsAndEarlyCopies, TakenBackTest, testing::Bool(),
                         [](const auto& named) { return named.param ? "EarlyCopy" : "Eviction"; });

TEST(EarlyCopiesTest, WithoutAHashNothingIsCopiedEarly) {
  CoreDevice device(SetupWith(nullptr));
  const CUdeviceptr block = Filled(device, 1);
  const TableLock lock(device->core()->table);
  EXPECT_FALSE(device->evictor()->CopyOutLocked(lock, BlockAt(device, block), policy::PlanTier::kHost));
}

}  // namespace
}  // namespace spillway::allocator
