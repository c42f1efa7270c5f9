// The small parts that choices are made with: range maxima, and the order of victims.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "policy/simulator/range_max.h"
#include "tests/policy/planner/full_scan.h"

namespace spillway::policy {
namespace {

TEST(RangeMaxTest, AgreesWithAPlainVector) {
  std::mt19937_64 random(3);
  for (const size_t size : {1u, 2u, 7u, 64u, 101u}) {
    std::vector<int64_t> plain(size);
    for (int64_t& value : plain) value = static_cast<int64_t>(random() % 100);
    RangeMax tree(plain);
    for (int i = 0; i < 2000; ++i) {
      const size_t begin = random() % (size + 1);
      const size_t end = begin + random() % (size + 1 - begin);
      if (begin < end) {
        EXPECT_EQ(tree.Max(begin, end), *std::max_element(plain.begin() + begin, plain.begin() + end));
      }
      const int64_t delta = static_cast<int64_t>(random() % 21) - 10;
      tree.Add(begin, end, delta);
      for (size_t at = begin; at < end; ++at) plain[at] += delta;
    }
  }
}

TEST(VictimTest, UnknownFirstByAgeThenFarthestNextUse) {
  const std::vector<VictimCandidate> candidates = {
      {1, 10, 90, 120}, {2, 10, 50, kNever}, {3, 10, 95, 300}, {4, 10, 20, kNever}, {5, 10, 10, 110}};
  EXPECT_EQ(SelectVictims(candidates, 1), (std::vector<uint32_t>{3}));
  EXPECT_EQ(SelectVictims(candidates, 25), (std::vector<uint32_t>{3, 1, 2}));
  EXPECT_EQ(SelectVictims(candidates, 1000), (std::vector<uint32_t>{3, 1, 2, 0, 4}));
  EXPECT_TRUE(SelectVictims(candidates, 0).empty());
  EXPECT_TRUE(SelectVictims({}, 5).empty());
}

}  // namespace
}  // namespace spillway::policy
