#include "integration/settings/name_distance.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace spillway::integration {
namespace {

size_t Distance(const std::string& text, const std::string& name) {
  return NameDistance(text.data(), text.size(), name.c_str());
}

TEST(NameDistanceTest, CountsLettersThatChange) {
  EXPECT_EQ(Distance("gpu_memory", "gpu_memory"), 0u);
  EXPECT_EQ(Distance("gpu_memroy", "gpu_memory"), 2u);
  EXPECT_EQ(Distance("gpumemory", "gpu_memory"), 1u);
  EXPECT_EQ(Distance("gpu__memory", "gpu_memory"), 1u);
  EXPECT_EQ(Distance("", "log"), 3u);
  EXPECT_EQ(Distance("log", ""), 3u);
}

TEST(NameDistanceTest, CaseDoesNotCount) { EXPECT_EQ(Distance("GPU_MEMORY", "gpu_memory"), 0u); }

TEST(NameDistanceTest, LooksNoFurtherThanTheBytesGiven) { EXPECT_EQ(NameDistance("logs", 3, "log"), 0u); }

TEST(NameDistanceTest, ANameTooLongIsFarthest) {
  EXPECT_EQ(Distance("log", std::string(48, 'x')), 48u);
  EXPECT_EQ(Distance("log", std::string(49, 'x')), SIZE_MAX);
}

}  // namespace
}  // namespace spillway::integration
