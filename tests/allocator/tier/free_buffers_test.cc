#include "allocator/tier/free_buffers.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace spillway::allocator {
namespace {

constexpr uint64_t kBytes = 4096;

std::byte* At(uint64_t buffer) { return reinterpret_cast<std::byte*>(0x10000 + buffer * kBytes); }

// The numbers of the buffers, in the order in which they came.
std::vector<uint64_t> Take(FreeBuffers* free, size_t count) {
  std::vector<std::byte*> buffers;
  const size_t taken = free->Take(count, &buffers);
  EXPECT_EQ(taken, buffers.size());
  std::vector<uint64_t> numbers;
  for (const std::byte* buffer : buffers)
    numbers.push_back((reinterpret_cast<uint64_t>(buffer) - 0x10000) / kBytes);
  return numbers;
}

using Numbers = std::vector<uint64_t>;

TEST(FreeBuffersTest, TheSmallestRunThatSufficesElseTheLargest) {
  FreeBuffers free(kBytes);
  free.Give(At(0), 3);
  free.Give(At(10), 8);
  free.Give(At(20), 5);
  EXPECT_EQ(free.size(), 16u);
  EXPECT_EQ(Take(&free, 4), (Numbers{20, 21, 22, 23}));
  EXPECT_EQ(Take(&free, 10), (Numbers{10, 11, 12, 13, 14, 15, 16, 17, 0, 1}));
  EXPECT_EQ(Take(&free, 9), (Numbers{24, 2})) << "what is left";
  EXPECT_EQ(Take(&free, 1), Numbers{});
}

TEST(FreeBuffersTest, WhatComesBackJoinsItsNeighbors) {
  FreeBuffers free(kBytes);
  free.Give(At(0), 8);
  EXPECT_EQ(Take(&free, 8).size(), 8u);
  for (const uint64_t buffer : {6, 1, 4, 3, 0, 5, 7}) free.Give(At(buffer), 1);
  EXPECT_EQ(free.size(), 7u);
  EXPECT_EQ(Take(&free, 5), (Numbers{3, 4, 5, 6, 7}));
  free.Give(At(2), 1);
  EXPECT_EQ(Take(&free, 3), (Numbers{0, 1, 2}));
}

TEST(FreeBuffersDeathTest, ABufferThatComesBackTwiceStops) {
  FreeBuffers free(kBytes);
  free.Give(At(0), 4);
  EXPECT_DEATH(free.Give(At(0), 1), "CHECK failed");
  EXPECT_DEATH(free.Give(At(2), 1), "CHECK failed");
}

TEST(FreeBuffersTest, EachBufferHasOneOwnerWhateverTheOrder) {
  std::mt19937 random(3);
  FreeBuffers free(kBytes);
  free.Give(At(0), 80);
  std::set<uint64_t> taken;
  for (int i = 0; i < 5000; ++i) {
    if (random() % 2 == 0) {
      for (const uint64_t buffer : Take(&free, 1 + random() % 20)) EXPECT_TRUE(taken.insert(buffer).second);
    } else if (!taken.empty()) {
      const auto any = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      free.Give(At(*any), 1);
      taken.erase(any);
    }
    ASSERT_EQ(free.size() + taken.size(), 80u);
  }
}

}  // namespace
}  // namespace spillway::allocator
