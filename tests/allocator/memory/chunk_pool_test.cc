#include "allocator/memory/chunk_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "allocator/memory/address_map.h"
#include "tests/allocator/core_fixture.h"
#include "tests/fakes/wait_until.h"
#include "tests/sizes.h"

namespace spillway::allocator {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

std::vector<uint32_t> SizesOf(const std::vector<ChunkHandle>& handles) {
  std::vector<uint32_t> sizes;
  for (const ChunkHandle& handle : handles) sizes.push_back(handle.chunks);
  return sizes;
}

// Begins and ends a supply as if the driver had made all that it lacked.
std::vector<ChunkHandle> Taken(ChunkPool* pool, const std::vector<uint64_t>& blocks) {
  Supply supply;
  EXPECT_TRUE(pool->Begin(blocks, &supply));
  for (const uint32_t chunks : supply.to_create) supply.handles.push_back({1000 + chunks, chunks});
  supply.to_create.clear();
  supply.to_release.clear();
  pool->End(&supply);
  return supply.handles;
}

TEST(ChunkPoolTest, ABlockIsBackedByTheFewestHandles) {
  const ChunkPool pool(8);
  EXPECT_THAT(pool.PartsOf(1), ElementsAre(1));
  EXPECT_THAT(pool.PartsOf(7), ElementsAre(4, 2, 1));
  EXPECT_THAT(pool.PartsOf(8), ElementsAre(8));
  EXPECT_THAT(pool.PartsOf(21), ElementsAre(8, 8, 4, 1));
  EXPECT_THAT(ChunkPool(1).PartsOf(3), ElementsAre(1, 1, 1));
}

TEST(ChunkPoolTest, CreatesUpToTheTargetAndReusesWhatIsFree) {
  ChunkPool pool(8);
  pool.set_target(8);
  EXPECT_EQ(pool.available(), 8u);
  Supply supply;
  EXPECT_FALSE(pool.Begin({9}, &supply));
  std::vector<ChunkHandle> handles = Taken(&pool, {3, 4});
  EXPECT_THAT(SizesOf(handles), UnorderedElementsAre(2, 1, 4));
  EXPECT_EQ(pool.created(), 7u);
  EXPECT_EQ(pool.available(), 1u);
  std::vector<ChunkHandle> first = pool.Portion(3, &handles);
  EXPECT_THAT(SizesOf(first), ElementsAre(2, 1));
  EXPECT_TRUE(pool.Portion(3, &handles).empty());
  EXPECT_THAT(SizesOf(handles), ElementsAre(4)) << "nothing of a portion that is not whole";
  pool.Give(&first);
  EXPECT_EQ(pool.free(), 3u);
  // The same size again: as it was.
  EXPECT_TRUE(pool.Begin({3}, &supply));
  EXPECT_TRUE(supply.ready());
  EXPECT_THAT(SizesOf(supply.handles), ElementsAre(2, 1));
  EXPECT_EQ(pool.created(), 7u);
  EXPECT_EQ(pool.peak_created(), 7u);
}

TEST(ChunkPoolTest, MemoryInOtherSizesIsMadeAnew) {
  ChunkPool pool(8);
  pool.set_target(8);
  std::vector<ChunkHandle> small = Taken(&pool, {1, 1, 1, 1, 1, 1, 1, 1});
  pool.Give(&small);
  Supply merge;
  ASSERT_TRUE(pool.Begin({8}, &merge));
  EXPECT_EQ(merge.to_release.size(), 8u);
  EXPECT_THAT(merge.to_create, ElementsAre(8));
  EXPECT_EQ(pool.created(), 8u);
  EXPECT_EQ(pool.available(), 0u);
  std::vector<ChunkHandle> large = {{7, 8}};
  pool.Give(&large);
  // A part of a large one is wanted: what is left of it may be created again.
  Supply split;
  ASSERT_TRUE(pool.Begin({3}, &split));
  EXPECT_EQ(split.to_release.size(), 1u);
  EXPECT_THAT(split.to_create, ElementsAre(2, 1));
  EXPECT_EQ(pool.created(), 8u) << "until the driver has it back";
  EXPECT_EQ(pool.available(), 0u);
  EXPECT_EQ(pool.excess(), 0u);
  split.to_create.clear();
  pool.End(&split);
  EXPECT_EQ(pool.created(), 3u);
  EXPECT_EQ(pool.available(), 5u);
}

TEST(ChunkPoolTest, AsTheyAreHandlesServeABlockThatTheyAddUpTo) {
  ChunkPool pool(8);
  pool.set_target(16);
  std::vector<ChunkHandle> handles = Taken(&pool, {1, 1, 1, 2, 2, 8});
  pool.Give(&handles);
  std::vector<ChunkHandle> taken;
  EXPECT_FALSE(pool.TakeAsTheyAre({4, 4}, &taken)) << "8, and 7 in small ones";
  EXPECT_TRUE(taken.empty());
  EXPECT_EQ(pool.free(), 15u);
  ASSERT_TRUE(pool.TakeAsTheyAre({4, 3}, &taken));
  EXPECT_THAT(SizesOf(ChunkPool::Portion(4, &taken)), ElementsAre(2, 2));
  EXPECT_THAT(SizesOf(ChunkPool::Portion(3, &taken)), ElementsAre(1, 1, 1));
  EXPECT_TRUE(taken.empty());
  EXPECT_EQ(pool.free(), 8u);
  EXPECT_EQ(pool.created(), 15u);
}

// Each block of one call gets its portion, in the order of the call, whatever sizes were free.
TEST(ChunkPoolTest, APortionForEachBlock) {
  std::mt19937 random(11);
  int served = 0;
  for (int round = 0; round < 3000; ++round) {
    ChunkPool pool(16);
    pool.set_target(200);
    std::vector<uint64_t> sizes;
    for (int i = 0; i < 12; ++i) sizes.push_back(1 + random() % 20);
    std::vector<ChunkHandle> handles = Taken(&pool, sizes);
    pool.Give(&handles);
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(1 + random() % 20);
    if (round % 2 == 0) {
      handles = Taken(&pool, blocks);
    } else if (!pool.TakeAsTheyAre(blocks, &handles)) {
      continue;
    }
    ++served;
    for (const uint64_t chunks : blocks) ASSERT_EQ(ChunksOf(ChunkPool::Portion(chunks, &handles)), chunks);
    EXPECT_TRUE(handles.empty());
  }
  EXPECT_GT(served, 1500);
}

TEST(ChunkPoolTest, WhatTheDriverRefusesDoesNotCount) {
  ChunkPool pool(8);
  pool.set_target(8);
  Supply supply;
  ASSERT_TRUE(pool.Begin({7}, &supply));
  supply.to_create.erase(supply.to_create.begin());  // the 4 was made
  pool.End(&supply);
  EXPECT_EQ(pool.created(), 4u);
  EXPECT_TRUE(supply.ready());
}

TEST(ChunkPoolTest, ATargetThatFallsLeavesAnExcess) {
  ChunkPool pool(8);
  pool.set_target(12);
  std::vector<ChunkHandle> handles = Taken(&pool, {8, 4});
  std::vector<ChunkHandle> four = pool.Portion(4, &handles);
  pool.Give(&four);
  pool.set_target(9);
  EXPECT_EQ(pool.excess(), 3u);
  EXPECT_EQ(pool.available(), 4u);  // what is free may still be had
  std::vector<ChunkHandle> released;
  EXPECT_EQ(pool.BeginRelease(3, &released), 4u) << "no smaller one is free";
  EXPECT_THAT(SizesOf(released), ElementsAre(4));
  EXPECT_EQ(pool.excess(), 0u) << "nothing more need go";
  EXPECT_TRUE(pool.above_target()) << "but it is not gone yet";
  EXPECT_EQ(pool.created(), 12u);
  EXPECT_EQ(pool.available(), 0u);
  pool.EndRelease(4);
  EXPECT_FALSE(pool.above_target());
  EXPECT_EQ(pool.created(), 8u);
  EXPECT_EQ(pool.available(), 1u);
  EXPECT_EQ(pool.BeginRelease(9, &released), 0u);
}

// Whatever sizes are free, all that is available can be had in any sizes.
TEST(ChunkPoolTest, NoFragmentationRefusesABlock) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    ChunkPool pool(64);
    pool.set_target(1 + random() % 300);
    std::vector<std::vector<ChunkHandle>> blocks;
    for (int i = 0; i < 40; ++i) {
      const uint64_t chunks = 1 + random() % 40;
      if (random() % 3 == 0 && !blocks.empty()) {
        pool.Give(&blocks.back());
        blocks.pop_back();
      } else if (chunks <= pool.available()) {
        blocks.push_back(Taken(&pool, {chunks}));
        ASSERT_EQ(ChunksOf(blocks.back()), chunks);
      }
    }
    if (random() % 2 == 0) pool.set_target(random() % 300);
    const uint64_t most = pool.available();
    if (most == 0) continue;
    Supply supply;
    EXPECT_FALSE(pool.Begin({most + 1}, &supply));
    EXPECT_TRUE(supply.ready());
    EXPECT_EQ(ChunksOf(Taken(&pool, {most})), most);
    EXPECT_LE(pool.created(), std::max(pool.target(), pool.peak_created()));
  }
}

TEST(ChunkPoolTest, TheDriverMakesASupplyAndKeepsWhatItRefuses) {
  const CudaDriver* const driver = CoreDevice::Driver();
  driver->cuCtxSetCurrent(CoreDevice::Context());
  ChunkPool pool(8);
  pool.set_target(15);
  Supply supply;
  ASSERT_TRUE(pool.Begin({15}, &supply));
  ASSERT_TRUE(Make(driver, 0, kChunk, &supply).ok());
  EXPECT_THAT(SizesOf(supply.handles), UnorderedElementsAre(8, 4, 2, 1));
  pool.End(&supply);
  pool.Give(&supply.handles);
  Supply other;
  ASSERT_TRUE(pool.Begin({3, 3, 3, 3, 3}, &other));
  EXPECT_FALSE(other.to_release.empty());
  int created = 0;
  CudaDriver full = *driver;
  full.cuMemCreate = [](CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                        unsigned long long) { return CUDA_ERROR_OUT_OF_MEMORY; };
  EXPECT_TRUE(absl::IsResourceExhausted(Make(&full, 0, kChunk, &other)));
  EXPECT_TRUE(other.to_release.empty());
  for (const uint32_t chunks : other.to_create) created += chunks;
  pool.End(&other);
  EXPECT_EQ(pool.created(), 15u - created);
  EXPECT_EQ(ChunksOf(other.handles), pool.created());
  EXPECT_TRUE(Release(driver, other.handles).ok());
  SetSimcuda("HANDLES", "answer");
  EXPECT_FALSE(Release(driver, {{0xdead, 1}}).ok());
  SetSimcuda("HANDLES", "stop");
}

TEST(ChunkPoolTest, MemoryThatTheDriverStillClearsIsWaitedFor) {
  const CudaDriver* const driver = CoreDevice::Driver();
  driver->cuCtxSetCurrent(CoreDevice::Context());
  ChunkPool pool(8);
  pool.set_target(uint64_t{1} << 20);
  std::vector<ChunkHandle> all;
  for (bool has_more = true; has_more;) {  // until the device is full
    Supply supply;
    ASSERT_TRUE(pool.Begin({4}, &supply));
    has_more = Make(driver, 0, kChunk, &supply).ok();
    pool.End(&supply);
    all.insert(all.end(), supply.handles.begin(), supply.handles.end());
  }
  pool.set_target(pool.created());
  pool.Give(&all);
  SetSimcuda("SCRUB", "100000");
  Supply larger;
  ASSERT_TRUE(pool.Begin({8}, &larger));
  EXPECT_FALSE(larger.to_release.empty());
  EXPECT_TRUE(Make(driver, 0, kChunk, &larger).ok());
  pool.End(&larger);
  SetSimcuda("SCRUB", "0");
  EXPECT_THAT(SizesOf(larger.handles), UnorderedElementsAre(8));
  pool.Give(&larger.handles);
  all.clear();
  EXPECT_TRUE(pool.TakeAsTheyAre({pool.created()}, &all));
  EXPECT_TRUE(Release(driver, all).ok());
}

TEST(ChunkPoolTest, MappingFailsWhole) {
  const CudaDriver* const driver = CoreDevice::Driver();
  driver->cuCtxSetCurrent(CoreDevice::Context());
  auto map = AddressMap::Reserve(driver, 1, kMiB, kChunk);
  ASSERT_TRUE(map.ok());
  Supply supply;
  supply.to_create = {1, 1};
  ASSERT_TRUE(Make(driver, 0, kChunk, &supply).ok());
  const std::vector<ChunkHandle>& handles = supply.handles;
  const uint64_t at = (*map)->base();
  bool stays = false;
  SetSimcuda("FAIL_SET_ACCESS_EVERY", "1");
  EXPECT_FALSE(MapChunks(driver, 0, at, kChunk, handles, &stays).ok());
  SetSimcuda("FAIL_SET_ACCESS_EVERY", "2");  // not ready, once: tried again
  EXPECT_TRUE(MapChunks(driver, 0, at, kChunk, handles, &stays).ok());
  EXPECT_TRUE(UnmapChunks(driver, at, 2 * kChunk).ok());
  EXPECT_TRUE(MapChunks(driver, 0, at, kChunk, handles, &stays).ok());
  SetSimcuda("FAIL_SET_ACCESS_EVERY", "0");
  EXPECT_FALSE(stays);
  EXPECT_TRUE(UnmapChunks(driver, at, 2 * kChunk).ok());
  // What has been mapped, and can be neither opened nor unmapped, stays.
  CudaDriver stubborn = *driver;
  stubborn.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    return CUDA_ERROR_UNKNOWN;
  };
  stubborn.cuMemUnmap = [](CUdeviceptr, size_t) { return CUDA_ERROR_UNKNOWN; };
  EXPECT_FALSE(MapChunks(&stubborn, 0, at, kChunk, handles, &stays).ok());
  EXPECT_TRUE(stays);
  EXPECT_TRUE(UnmapChunks(driver, at, 2 * kChunk).ok());
  EXPECT_TRUE(Release(driver, handles).ok());
}

// ---- One call at a time.

const CudaDriver* plain = nullptr;
std::atomic<int> under_way{0};
std::atomic<bool> met{false}, one_ended{false};

// Is under way until the other thread has come for its turn, or has met this call.
CUresult Slowly(const std::function<CUresult()>& call) {
  if (under_way.fetch_add(1) != 0) met = true;
  EXPECT_TRUE(tests::WaitUntil([] { return met || one_ended || plain->memory_turn->standing() > 1; }));
  const CUresult result = call();
  under_way.fetch_sub(1);
  return result;
}

CudaDriver SlowDriver() {
  CudaDriver slow = *plain;
  slow.cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t bytes,
                        const CUmemAllocationProp* properties, unsigned long long flags) {
    return Slowly([&] { return plain->cuMemCreate(handle, bytes, properties, flags); });
  };
  slow.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
    return Slowly([&] { return plain->cuMemRelease(handle); });
  };
  slow.cuMemMap = [](CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                     unsigned long long flags) {
    return Slowly([&] { return plain->cuMemMap(at, bytes, offset, handle, flags); });
  };
  slow.cuMemSetAccess = [](CUdeviceptr at, size_t bytes, const CUmemAccessDesc* access, size_t count) {
    return Slowly([&] { return plain->cuMemSetAccess(at, bytes, access, count); });
  };
  slow.cuMemUnmap = [](CUdeviceptr at, size_t bytes) {
    return Slowly([&] { return plain->cuMemUnmap(at, bytes); });
  };
  return slow;
}

// A launch that needs the driver's lock then finds one call of ours before it, and not two.
TEST(ChunkPoolTest, CallsOfTwoThreadsDoNotMeetInTheDriver) {
  plain = CoreDevice::Driver();
  plain->cuCtxSetCurrent(CoreDevice::Context());
  auto map = AddressMap::Reserve(plain, 1, kMiB, kChunk);
  ASSERT_TRUE(map.ok());
  const CudaDriver drivers[] = {SlowDriver(), SlowDriver()};  // copies of a table share the lock
  const auto work = [&](int thread) {
    const CudaDriver* const driver = &drivers[thread];
    driver->cuCtxSetCurrent(CoreDevice::Context());
    const uint64_t at = (*map)->base() + static_cast<uint64_t>(thread) * 2 * kChunk;
    for (int i = 0; i < 5; ++i) {
      Supply supply;
      supply.to_create = {1, 1};
      ASSERT_TRUE(Make(driver, 0, kChunk, &supply).ok());
      bool stays = false;
      EXPECT_TRUE(MapChunks(driver, 0, at, kChunk, supply.handles, &stays).ok());
      EXPECT_TRUE(GrantAccess(driver, 0, at, 2 * kChunk).ok());
      EXPECT_TRUE(UnmapChunks(driver, at, 2 * kChunk).ok());
      EXPECT_TRUE(Release(driver, supply.handles).ok());
    }
    one_ended = true;
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_FALSE(met);
}

}  // namespace
}  // namespace spillway::allocator
