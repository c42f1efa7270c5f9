#include "integration/escape/block_trust.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace spillway::integration {
namespace {

// Tags as those of names: spread over all bits.
uint64_t TagOf(uint64_t i) { return (i + 1) * 0x9e3779b97f4a7c15u; }

TEST(BlockTrustTest, ManyFunctionsAndBlocksFromManyThreads) {
  BlockTrust trust;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&trust, t] {
      allocator::AccessSet set;
      for (uint32_t i = 1; i < 400; ++i) {
        set.Clear();
        set.Add(allocator::BlockId(t % 2, i));
        for (int twice = 0; twice < 2; ++twice) trust.RecordLaunch(TagOf(i), set);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t i = 1; i < 400; ++i) EXPECT_TRUE(trust.MayLeave(allocator::BlockId(0, i))) << i;
  allocator::AccessSet set;
  set.Add(allocator::BlockId(1, 7));
  trust.RecordLaunch(TagOf(1000), set);
  EXPECT_FALSE(trust.MayLeave(allocator::BlockId(1, 7)));
}

}  // namespace
}  // namespace spillway::integration
