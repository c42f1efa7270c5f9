#include "allocator/memory/chunk_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "allocator/memory/address_map.h"
#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

using testing::ElementsAre;

constexpr uint64_t kChunk = CoreDevice::kChunk;
constexpr uint64_t kMib = 1 << 20;

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
  EXPECT_EQ(pool.created(), 3u);
  EXPECT_EQ(pool.peak_created(), 5u);
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
  EXPECT_EQ(pool.created(), 2u);
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

}  // namespace
}  // namespace spillway::allocator
