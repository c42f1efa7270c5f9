#include "allocator/memory/size_counts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

namespace spillway::allocator {
namespace {

TEST(SizeCountsTest, LargestIsOfWhatIsThere) {
  SizeCounts sizes;
  EXPECT_EQ(sizes.Largest(), 0u);
  for (const uint32_t chunks : {3, 7, 7}) sizes.Add(chunks);
  EXPECT_EQ(sizes.Largest(), 7u);
  sizes.Remove(7);
  EXPECT_EQ(sizes.Largest(), 7u);
  sizes.Remove(7);
  EXPECT_EQ(sizes.Largest(), 3u);
  sizes.Remove(3);
  EXPECT_EQ(sizes.Largest(), 0u);
}

// More sizes than are kept, so that places are given up and taken again.
TEST(SizeCountsTest, AgreesWithAMap) {
  std::mt19937 random(1);
  SizeCounts sizes;
  std::map<uint32_t, int> expected;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0 || expected.empty()) {
      const uint32_t chunks = 1 + random() % 1000;
      sizes.Add(chunks);
      ++expected[chunks];
    } else {
      auto it = expected.lower_bound(random() % 1000);
      if (it == expected.end()) it = expected.begin();
      sizes.Remove(it->first);
      if (--it->second == 0) expected.erase(it);
    }
    ASSERT_EQ(sizes.Largest(), expected.empty() ? 0 : expected.rbegin()->first);
  }
}

TEST(BlockSizesDeathTest, RemovingWhatIsNotThereStops) {
  SizeCounts sizes;
  sizes.Add(1);
  EXPECT_DEATH(sizes.Remove(2), "CHECK failed");
}

}  // namespace
}  // namespace spillway::allocator
