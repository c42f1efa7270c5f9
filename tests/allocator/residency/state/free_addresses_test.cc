// Addresses that are handed out again, and those that are not used again.

#include "allocator/residency/state/free_addresses.h"

#include <gtest/gtest.h>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

// The list alone, over the table of a device that nothing is allocated on.
class FreeAddressesTest : public testing::Test {
 protected:
  FreeAddressesTest()
      : device_({}), table_(&device_->core()->table), lock_(*table_), books_(*device_->free_addresses()) {}

  // A block of one chunk that was handed out and is freed, kFree.
  Block* Freed(CUstream stream) {
    Block* const block = *books_.Create(lock_, 1, stream);
    books_.RecordHandedOut(lock_);
    books_.RecordTakenBack(lock_, block);
    return block;
  }

  CoreDevice device_;
  BlockTable* const table_;
  const TableLock lock_;
  FreeAddresses& books_;
};

TEST_F(FreeAddressesTest, AnAddressGoesBackToItsStreamAndSizeLowestFirst) {
  const CUstream stream = reinterpret_cast<CUstream>(uintptr_t{1} << 8);
  Block* const low = Freed(stream);
  Block* const high = Freed(stream);
  ASSERT_LT(low->address, high->address);
  books_.Offer(lock_, high);
  books_.Offer(lock_, low);
  EXPECT_EQ(books_.Take(lock_, 1, nullptr), nullptr) << "another stream's";
  EXPECT_EQ(books_.Take(lock_, 2, stream), nullptr) << "another size";
  EXPECT_EQ(books_.Take(lock_, 1, stream), low);
  EXPECT_EQ(books_.Take(lock_, 1, stream), high);
  EXPECT_EQ(books_.Take(lock_, 1, stream), nullptr);
  EXPECT_EQ(books_.frees(lock_), 2u);
  books_.Offer(lock_, low);
  books_.Offer(lock_, high);
}

TEST_F(FreeAddressesTest, ABlockFreedDuringATransferIsPromisedAtOnceUnlessAStreamKeepsIt) {
  Block* const block = Freed(nullptr);
  books_.BeginFree(lock_, block);
  EXPECT_TRUE(block->allocation.freed);
  EXPECT_TRUE(block->allocation.listed);
  books_.FinishFree(lock_, block);
  EXPECT_FALSE(block->allocation.freed);
  Block* const recorded = Freed(nullptr);
  recorded->allocation.recorded.push_back({1, 1});
  books_.BeginFree(lock_, recorded);
  EXPECT_FALSE(recorded->allocation.listed);
  books_.FinishFree(lock_, recorded);  // kFree: nothing of it is in use
  EXPECT_TRUE(recorded->allocation.listed);
}

TEST(FreeAddressesOfADeviceTest, RecordsFollowWhatIsLiveNotWhatEverWas) {
  CoreDevice device({});
  const CUdeviceptr stays = device.MustAllocate(kBlock);
  EXPECT_EQ(FillBlock(device, stays, kBlock, 3), CUDA_SUCCESS);
  // No two of one stream and size, so that none takes the address of another.
  std::vector<CUstream> streams(200);
  for (CUstream& stream : streams) stream = device.NewStream();
  for (uint64_t chunks = 1; chunks <= 60; ++chunks) {
    for (CUstream stream : streams) {
      auto block = device->Allocate(chunks * CoreDevice::kChunk, {stream, false});
      ASSERT_TRUE(block.ok()) << block.status();
      ASSERT_TRUE(device->Free(*block).ok());
    }
  }
  {
    const TableLock lock(device->core()->table);
    EXPECT_LE(device->core()->table.CountLocked(lock, BlockState::kFree), 4200u);
  }
  EXPECT_EQ(Wrong(device, stays, 3), 0u);
  device->CheckInvariants();
}

}  // namespace
}  // namespace spillway::allocator
