#include "integration/report/last_entries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;

std::vector<int> All(const LastEntries<int>& entries) {
  std::vector<int> all;
  for (uint64_t number = entries.first(); number < entries.added(); ++number)
    all.push_back(entries.at(number));
  return all;
}

TEST(LastEntriesTest, KeepsTheLastOnes) {
  LastEntries<int> entries(3);
  EXPECT_TRUE(All(entries).empty());
  for (int i = 1; i <= 3; ++i) entries.Add(i);
  EXPECT_THAT(All(entries), ElementsAre(1, 2, 3));
  for (int i = 4; i <= 8; ++i) entries.Add(i);
  EXPECT_THAT(All(entries), ElementsAre(6, 7, 8));
  EXPECT_EQ(entries.added(), 8u);
  EXPECT_EQ(entries.first(), 5u);
}

}  // namespace
}  // namespace spillway::integration
