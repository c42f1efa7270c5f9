// Address space, chunks, kept addresses and the budget's arithmetic, by cases computed by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "allocator/memory/address_map.h"
#include "allocator/memory/block_allocator.h"
#include "allocator/memory/chunk_pool.h"
#include "allocator/memory/gpu_budget.h"
#include "allocator/memory/va_space.h"
#include "allocator/tier/spill_room.h"
#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr uint64_t kChunk = CoreDevice::kChunk;
constexpr uint64_t kMib = 1 << 20;

std::vector<BlockId> Blocks(const AccessSet& set) { return {set.begin(), set.end()}; }

// ---- VaSpace: base 0x1000000, 10 chunks of 0x100.

TEST(VaSpaceTest, LeavesOneChunkBeforeAndBehindEachBlock) {
  VaSpace space(0x1000000, 10 * 0x100, 0x100);
  EXPECT_EQ(space.Allocate(2).value(), 0x1000100u);
  EXPECT_EQ(space.Allocate(1).value(), 0x1000400u);  // 2 chunks and a guard behind the first
  EXPECT_EQ(space.free_bytes(), (10 - 1 - 3 - 2) * 0x100u);
  space.CheckInvariants();
}

TEST(VaSpaceTest, TakesTheLowestRangeThatFitsAndJoinsNeighbours) {
  VaSpace space(0x1000000, 12 * 0x100, 0x100);
  const uint64_t a = space.Allocate(1).value();
  const uint64_t b = space.Allocate(2).value();
  const uint64_t c = space.Allocate(1).value();
  space.Free(a, 1);
  EXPECT_EQ(space.Allocate(2).value(), c + 0x200);  // a's hole holds one chunk and its guard
  space.Free(b, 2);                                 // joins with a's hole: 5 chunks
  EXPECT_EQ(space.Allocate(4).value(), a);
  space.CheckInvariants();
}

TEST(VaSpaceTest, RefusesWhatDoesNotFitAndRecovers) {
  VaSpace space(0x1000000, 4 * 0x100, 0x100);
  EXPECT_EQ(space.Allocate(3).status().code(), absl::StatusCode::kResourceExhausted);
  const uint64_t all = space.Allocate(2).value();
  EXPECT_EQ(space.free_bytes(), 0u);
  EXPECT_FALSE(space.Allocate(1).ok());
  space.Free(all, 2);
  EXPECT_EQ(space.Allocate(2).value(), all);
}

TEST(VaSpaceTest, KeepsOffMultiplesOf4GiB) {
  constexpr uint64_t kMiB2 = 2 << 20, kBase = uint64_t{1} << 40, kStride = uint64_t{1} << 32;
  VaSpace space(kBase, 4 * kStride, kMiB2);
  // Neither a block nor the end of one is next to the chunks that hold multiple - 1 and multiple.
  EXPECT_EQ(space.Allocate(1).value(), kBase + 2 * kMiB2);
  const uint64_t most = (kStride - 3 * kMiB2) / kMiB2 - 1;  // chunks between two multiples, less a guard
  EXPECT_EQ(space.Allocate(most).value(), kBase + kStride + 2 * kMiB2);
  EXPECT_EQ(space.Allocate(most - 2).value(), kBase + 4 * kMiB2);  // what is left below, to its end
  EXPECT_EQ(space.Allocate(1).value(), kBase + 2 * kStride + 2 * kMiB2);
  space.CheckInvariants();
}

TEST(VaSpaceTest, LongBlocksLieAcrossMultiplesOf4GiB) {
  constexpr uint64_t kMiB2 = 2 << 20, kBase = uint64_t{1} << 40, kStride = uint64_t{1} << 32;
  VaSpace space(kBase, 4 * kStride, kMiB2);
  const uint64_t address = space.Allocate(2 * kStride / kMiB2).value();
  EXPECT_EQ(address, kBase + kMiB2);
  space.Free(address, 2 * kStride / kMiB2);
  EXPECT_EQ(space.free_bytes(), 4 * kStride - kMiB2);
  space.CheckInvariants();
}

TEST(VaSpaceDeathTest, FreeOfAFreeRangeStops) {
  VaSpace space(0x1000000, 10 * 0x100, 0x100);
  const uint64_t a = space.Allocate(2).value();
  space.Free(a, 2);
  EXPECT_DEATH(space.Free(a, 2), "CHECK failed");
}

// ---- BlockAllocator.

TEST(BlockAllocatorTest, HandsOutTheLowestAddressOfThatStreamAndSize) {
  BlockAllocator kept;
  const auto stream = reinterpret_cast<CUstream>(0x10);
  kept.Add(stream, 2, 0x3000, BlockId(0, 3));
  kept.Add(stream, 2, 0x1000, BlockId(0, 1));
  kept.Add(stream, 4, 0x0500, BlockId(0, 2));
  kept.Add(nullptr, 2, 0x0100, BlockId(0, 4));
  EXPECT_EQ(kept.Take(stream, 2), BlockId(0, 1));
  EXPECT_EQ(kept.Take(stream, 2), BlockId(0, 3));
  EXPECT_EQ(kept.Take(stream, 2), std::nullopt);
  EXPECT_EQ(kept.Take(stream, 3), std::nullopt);
  EXPECT_EQ(kept.size(), 2u);
}

TEST(BlockAllocatorTest, AnAddressThatIsRemovedIsNotTaken) {
  BlockAllocator kept;
  kept.Add(nullptr, 1, 0x1000, BlockId(0, 1));
  kept.Add(nullptr, 1, 0x2000, BlockId(0, 2));
  kept.Remove(nullptr, 1, 0x1000);
  EXPECT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept.Take(nullptr, 1), BlockId(0, 2));
  EXPECT_EQ(kept.Take(nullptr, 1), std::nullopt);
}

TEST(BlockAllocatorDeathTest, AddressTwiceStops) {
  BlockAllocator kept;
  kept.Add(nullptr, 1, 0x1000, BlockId(0, 1));
  EXPECT_DEATH(kept.Add(nullptr, 1, 0x1000, BlockId(0, 2)), "CHECK failed");
}

// ---- AddressMap.

class AddressMapTest : public testing::Test {
 protected:
  AddressMapTest() : map_(*AddressMap::Reserve(CoreDevice::Driver(), 2, 3 * kMib, kChunk)) {}
  uint64_t At(int chunk) const { return map_->device_base(0) + chunk * kChunk; }

  std::unique_ptr<AddressMap> map_;
};

TEST_F(AddressMapTest, SlicesArePowersOfTwo) {
  EXPECT_EQ(map_->bytes_per_device(), 4 * kMib);
  EXPECT_EQ(map_->total_bytes(), 8 * kMib);
  EXPECT_EQ(map_->device_base(1), map_->base() + 4 * kMib);
}

TEST_F(AddressMapTest, FindsBlocksByAnyByte) {
  map_->Assign(At(2), 3 * kChunk, BlockId(0, 7));
  EXPECT_EQ(map_->Find(At(2)), BlockId(0, 7));
  EXPECT_EQ(map_->Find(At(5) - 1), BlockId(0, 7));
  EXPECT_FALSE(map_->Find(At(5)).valid());
  EXPECT_FALSE(map_->Find(map_->base() - 1).valid());
  EXPECT_FALSE(map_->Find(map_->base() + map_->total_bytes()).valid());
  map_->Clear(At(2), 3 * kChunk);
  EXPECT_FALSE(map_->Find(At(3)).valid());
}

TEST_F(AddressMapTest, GuardChunkCountsForBothNeighbours) {
  map_->Assign(At(2), 2 * kChunk, BlockId(0, 1));
  map_->Assign(At(5), 1 * kChunk, BlockId(0, 2));
  AccessSet set;
  map_->Collect(At(4), &set);  // one past the end of the first
  EXPECT_THAT(Blocks(set), ElementsAre(BlockId(0, 1), BlockId(0, 2)));
  set.Clear();
  map_->Collect(At(1) + 8, &set);  // a negative offset from the first
  EXPECT_THAT(Blocks(set), ElementsAre(BlockId(0, 1)));
  set.Clear();
  map_->Collect(At(8), &set);
  map_->Collect(12345, &set);
  EXPECT_TRUE(set.empty());
}

TEST_F(AddressMapTest, CollectsRangesClippedToTheReservation) {
  map_->Assign(At(0), 2 * kChunk, BlockId(0, 1));
  map_->Assign(At(3), 2 * kChunk, BlockId(0, 2));
  AccessSet set;
  map_->CollectRange(At(1), 3 * kChunk, &set);
  EXPECT_THAT(Blocks(set), ElementsAre(BlockId(0, 1), BlockId(0, 2)));
  set.Clear();
  map_->CollectRange(At(1), kChunk, &set);  // ends where the guard begins
  EXPECT_THAT(Blocks(set), ElementsAre(BlockId(0, 1)));
  set.Clear();
  map_->CollectRange(map_->base() - kMib, 2 * kMib, &set);
  EXPECT_THAT(Blocks(set), ElementsAre(BlockId(0, 1), BlockId(0, 2)));
  set.Clear();
  map_->CollectRange(At(0), 0, &set);
  map_->CollectRange(map_->base() - kMib, kMib, &set);
  EXPECT_TRUE(set.empty());
}

TEST(AccessSetTest, KeepsOrderWithoutRepeats) {
  AccessSet set;
  for (uint32_t index : {3, 1, 3, 2, 1}) set.Add(BlockId(1, index));
  set.Add(BlockId(0, 9));
  EXPECT_THAT(Blocks(set), ElementsAre(BlockId(1, 3), BlockId(1, 1), BlockId(1, 2), BlockId(0, 9)));
}

TEST(AccessSetTest, TellsBlocksWithEqualLowBitsApartAndForgetsEarlierSets) {
  AccessSet set;
  for (int round = 0; round < 3; ++round) {
    set.Clear();
    EXPECT_TRUE(set.empty());
    std::vector<BlockId> expected;
    // Ids that differ in high bits only, and in the device, each twice, and more than the set has room for at first.
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (uint32_t i = 1; i <= 600; ++i) {
        const BlockId id(static_cast<int>(i % 3), 1 + (i / 4 + 17 * static_cast<uint32_t>(round)) * 4096);
        const bool known = std::find(expected.begin(), expected.end(), id) != expected.end();
        if (!known) expected.push_back(id);
        set.Add(id);
      }
    }
    EXPECT_THAT(Blocks(set), ElementsAreArray(expected));
    const AccessSet copy = set;
    EXPECT_THAT(Blocks(copy), ElementsAreArray(expected));
  }
}

// ---- ChunkPool: books.

TEST(ChunkPoolTest, CreatesUpToTheTargetAndReusesFreeChunks) {
  ChunkPool pool;
  pool.set_target(5);
  EXPECT_EQ(pool.available(), 5u);
  EXPECT_EQ(pool.BeginCreate(3), 3u);
  std::vector<ChunkHandle> chunks = {11, 12, 13};
  EXPECT_EQ(pool.BeginCreate(9), 2u);
  pool.CancelCreate(2);
  pool.Give(&chunks);
  EXPECT_TRUE(chunks.empty());
  EXPECT_EQ(pool.available(), 5u);
  EXPECT_EQ(pool.TakeFree(2, &chunks), 2u);
  EXPECT_THAT(chunks, ElementsAre(12, 13));
  EXPECT_EQ(pool.TakeFree(2, &chunks), 1u);
  EXPECT_EQ(pool.held(), 3u);
  EXPECT_EQ(pool.peak_held(), 5u);
}

TEST(ChunkPoolTest, ATargetThatFallsLeavesAnExcess) {
  ChunkPool pool;
  pool.set_target(4);
  pool.BeginCreate(4);
  std::vector<ChunkHandle> chunks = {1, 2};
  pool.Give(&chunks);
  pool.set_target(1);
  EXPECT_EQ(pool.excess(), 3u);
  EXPECT_EQ(pool.available(), 2u);  // what is free may still be had
  EXPECT_EQ(pool.BeginCreate(1), 0u);
  EXPECT_EQ(pool.BeginRelease(3, &chunks), 2u);
  EXPECT_EQ(pool.held(), 2u);
  EXPECT_EQ(pool.excess(), 1u);
}

TEST(ChunkPoolTest, MappingFailsWhole) {
  const CudaDriver* const driver = CoreDevice::Driver();
  driver->cuCtxSetCurrent(CoreDevice::Context());
  auto map = AddressMap::Reserve(driver, 1, kMib, kChunk);
  ASSERT_TRUE(map.ok());
  std::vector<ChunkHandle> chunks(2);
  for (ChunkHandle& chunk : chunks) ASSERT_TRUE(CreateChunk(driver, 0, kChunk, &chunk).ok());
  const uint64_t at = (*map)->base();
  bool stays = false;
  SetSimcuda("FAIL_SET_ACCESS_EVERY", "1");
  EXPECT_FALSE(MapChunks(driver, 0, at, kChunk, chunks, &stays).ok());
  SetSimcuda("FAIL_SET_ACCESS_EVERY", "2");  // not ready, once: tried again
  EXPECT_TRUE(MapChunks(driver, 0, at, kChunk, chunks, &stays).ok());
  EXPECT_TRUE(UnmapChunks(driver, at, 2 * kChunk).ok());
  EXPECT_TRUE(MapChunks(driver, 0, at, kChunk, chunks, &stays).ok());
  SetSimcuda("FAIL_SET_ACCESS_EVERY", "0");
  EXPECT_FALSE(stays);
  EXPECT_TRUE(UnmapChunks(driver, at, 2 * kChunk).ok());
  // What has been mapped, and can be neither opened nor unmapped, stays.
  CudaDriver stubborn = *driver;
  stubborn.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    return CUDA_ERROR_UNKNOWN;
  };
  stubborn.cuMemUnmap = [](CUdeviceptr, size_t) { return CUDA_ERROR_UNKNOWN; };
  EXPECT_FALSE(MapChunks(&stubborn, 0, at, kChunk, chunks, &stays).ok());
  EXPECT_TRUE(stays);
  EXPECT_TRUE(UnmapChunks(driver, at, 2 * kChunk).ok());
  for (ChunkHandle chunk : chunks) EXPECT_TRUE(ReleaseChunk(driver, chunk).ok());
}

// ---- Budget and charging. GPU 100 MiB, others' share 16 MiB.

TEST(GpuBudgetTest, OthersShareIsTheirsEvenWhileUnused) {
  EXPECT_EQ((GpuBudget{100 * kMib, 16 * kMib, 0}.ChunkTarget()), 84 * kMib);
  EXPECT_EQ((GpuBudget{100 * kMib, 16 * kMib, 10 * kMib}.ChunkTarget()), 84 * kMib);
  EXPECT_EQ((GpuBudget{100 * kMib, 16 * kMib, 40 * kMib}.ChunkTarget()), 60 * kMib);
  EXPECT_EQ((GpuBudget{100 * kMib, 16 * kMib, 400 * kMib}.ChunkTarget()), 0u);
  EXPECT_EQ(DefaultOthersShare(100 * kMib), 16 * kMib);
  EXPECT_EQ(DefaultOthersShare(10'000 * kMib), 200 * kMib);
}

Charge ChargeOf(uint64_t live, uint64_t block, uint64_t set) {
  Charge charge;
  charge.live = live * kMib;
  charge.largest_block = block * kMib;
  charge.largest_set = set * kMib;
  charge.chunk_target = 84 * kMib;
  return charge;
}

TEST(ChargeTest, WhatFitsTheGpuNeedsNoExchange) {
  EXPECT_EQ(ChargeOf(84, 84, 84).BeyondGpu(), 0u);
  EXPECT_TRUE(ChargeOf(84, 84, 84).FitsGpu());
  EXPECT_FALSE(ChargeOf(85, 84, 84).FitsGpu());
}

TEST(ChargeTest, HeadroomIsTheLargestLaunchAndOneBlockThatLeaves) {
  EXPECT_EQ(ChargeOf(0, 10, 15).Headroom(), 25 * kMib);
  EXPECT_EQ(ChargeOf(0, 20, 15).Headroom(), 40 * kMib);  // a launch may name the block alone
  EXPECT_EQ(ChargeOf(144, 10, 0).BeyondGpu(), 80 * kMib);
  EXPECT_EQ(ChargeOf(139, 10, 15).BeyondGpu(), 80 * kMib);
  EXPECT_EQ(ChargeOf(85, 1, 0).BeyondGpu(), 3 * kMib);
}

TEST(ChargeTest, ABlockMayTakeAllOfTheGpuAloneInItsLaunch) {
  EXPECT_TRUE(ChargeOf(90, 84, 0).LaunchFits());
  EXPECT_FALSE(ChargeOf(90, 85, 0).LaunchFits());
  EXPECT_FALSE(ChargeOf(90, 10, 85).LaunchFits());
}

TEST(ChargeTest, WhatNeverLeavesIsNotThereForLaunches) {
  Charge charge = ChargeOf(100, 10, 40);
  charge.held = 44 * kMib;
  EXPECT_TRUE(charge.LaunchFits());
  charge.held = 45 * kMib;
  EXPECT_FALSE(charge.LaunchFits());
}

// ---- SpillRoom.

// A host tier of that size, all of it pinned.
std::unique_ptr<HostPool> PinnedPool(uint64_t bytes) {
  HostPool::Options options;
  options.storage_bytes = bytes;
  options.evict_staging_pieces = 0;
  options.fault_staging_pieces = 0;
  auto pool = HostPool::Create(CoreDevice::Driver(), CoreDevice::Context(), options);
  SPILLWAY_CHECK(pool.ok() && (*pool)->GrowStorageTo(bytes).ok());
  return *std::move(pool);
}

TEST(SpillRoomTest, PromisesOfAllDevicesTogetherMustFit) {
  const auto pool = PinnedPool(80 * kMib);
  SpillRoom room(pool.get(), nullptr);
  EXPECT_TRUE(room.Change(0, 50 * kMib));   // the first device
  EXPECT_FALSE(room.Change(0, 31 * kMib));  // the second: 81 in all
  EXPECT_EQ(room.promised_bytes(), 50 * kMib);
  EXPECT_TRUE(room.Change(0, 30 * kMib));
  EXPECT_FALSE(room.Change(50 * kMib, 51 * kMib));
  EXPECT_TRUE(room.Change(50 * kMib, 10 * kMib));  // the first gives some back
  EXPECT_TRUE(room.Change(30 * kMib, 70 * kMib));
  EXPECT_TRUE(room.Change(70 * kMib, 0));
  EXPECT_EQ(room.promised_bytes(), 10 * kMib);
}

TEST(SpillRoomTest, DevicesThatPromiseAtOnceNeverPassTheRoom) {
  static constexpr uint64_t kRoom = 2 * kMib;
  const auto pool = PinnedPool(kRoom);
  SpillRoom room(pool.get(), nullptr);
  std::vector<uint64_t> mine(4);
  std::vector<std::thread> devices;
  for (uint64_t& promise : mine) {
    devices.emplace_back([&room, &promise] {
      for (uint64_t i = 0; i < 20'000; ++i) {
        const uint64_t next = (i * 131 + reinterpret_cast<uintptr_t>(&promise)) % (kRoom / 10 * 7);
        if (room.Change(promise, next)) promise = next;
        ASSERT_LE(room.promised_bytes(), kRoom);
      }
    });
  }
  for (std::thread& device : devices) device.join();
  EXPECT_EQ(room.promised_bytes(), std::accumulate(mine.begin(), mine.end(), uint64_t{0}));
}

}  // namespace
}  // namespace spillway::allocator
