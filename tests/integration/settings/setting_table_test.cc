#include "integration/settings/setting_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SettingTableTest, EachSettingStandsOnceWithAllItsWords) {
  std::set<std::string> names;
  for (const SettingRow& row : SettingTable()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const std::string text : {row.fallback, row.accepted, row.meaning}) EXPECT_NE(text, "") << row.name;
  }
  EXPECT_TRUE(names.contains("spillway"));
  EXPECT_TRUE(names.contains("gpu_memory"));
  EXPECT_FALSE(names.contains("gds")) << "a retired name is no setting";
}

TEST(SettingTableTest, AVariableIsThePrefixAndTheName) {
  EXPECT_EQ(VariableOf("gpu_memory"), "SPILLWAY_GPU_MEMORY");
  EXPECT_EQ(VariableOf("spillway"), "SPILLWAY");
}

TEST(UnknownSettingsTest, NameTheNearest) {
  EXPECT_THAT(
      UnknownSettings({"SPILLWAY_GPU_MEMROY"}),
      ElementsAre("SPILLWAY_GPU_MEMROY is unknown and ignored; the nearest name is SPILLWAY_GPU_MEMORY"));
}

TEST(UnknownSettingsTest, AreNeitherOursNorOthers) {
  EXPECT_THAT(UnknownSettings({"PATH", "SPILLWAY", "SPILLWAY_DIRS", "SPILLWAY_GDS", "SPILLWAY_PYTHON",
                               "SPILLWAY_ALLOC_CONF_ORIGINAL", "SPILLWAYS_DIRS"}),
              IsEmpty());
}

}  // namespace
}  // namespace spillway::integration
