// CleanCopies: whose copies are given up first; CopyBackoff.

#include "allocator/residency/state/clean_copies.h"

#include <gtest/gtest.h>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

TEST(CopyBackoffTest, WhatKeepsChangingIsLeftAloneForLongerAndLonger) {
  CopyBackoff backoff;
  uint32_t hashed = 0;
  for (int eviction = 0; eviction < 1000; ++eviction) {
    if (!backoff.WantsHash()) continue;
    ++hashed;
    backoff.RecordUseless();
  }
  EXPECT_LE(hashed, 25u);
  EXPECT_GE(hashed, 15u);
  EXPECT_FALSE(backoff.proven());
  backoff.RecordUnchanged();
  EXPECT_TRUE(backoff.proven());
  EXPECT_TRUE(backoff.WantsHash());
}

TEST(CleanCopiesTest, CopiesOfNoProvenUseGoFirstThenTheOldest) {
  CoreDevice device({});
  HostPool& host = device.host();
  const size_t free = host.Free(HostUse::kStorage);
  const TableLock lock(device->core()->table);
  CleanCopies copies(&device->core()->table, &host, nullptr);
  Block blocks[3];
  for (Block& block : blocks) {
    block.chunks = 1;
    std::vector<PinnedBuffer> buffer;
    ASSERT_EQ(host.Take(HostUse::kStorage, 1, &buffer), 1u);
    copies.Keep(lock, &block, {ExtentHome::InHost(buffer[0])}, {});
  }
  blocks[0].copies.backoff.RecordUnchanged();
  EXPECT_EQ(copies.host_buffers(lock), 3u);
  copies.ReclaimHost(lock, 1);
  EXPECT_TRUE(blocks[1].copies.copy_homes.empty());
  copies.ReclaimHost(lock, 1);
  EXPECT_TRUE(blocks[2].copies.copy_homes.empty());
  EXPECT_FALSE(blocks[0].copies.copy_homes.empty());
  copies.Drop(lock, &blocks[0]);
  EXPECT_EQ(copies.size(lock), 0u);
  EXPECT_EQ(host.Free(HostUse::kStorage), free);
}

}  // namespace
}  // namespace spillway::allocator
