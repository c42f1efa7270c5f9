#include "policy/model/range_max.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

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

}  // namespace
}  // namespace spillway::policy
