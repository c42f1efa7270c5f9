#include "integration/settings/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace spillway::integration {
namespace {

TEST(EnvironmentTest, TellsWhatIsSet) {
  ::setenv("SPILLWAY_DIRS", "/a=b", 1);
  ::setenv("SPILLWAY", "", 1);
  ::unsetenv("SPILLWAY_LOG");
  EXPECT_THAT(EnvironmentNames(), ::testing::IsSupersetOf({"SPILLWAY_DIRS", "SPILLWAY"}));
  EXPECT_THAT(EnvironmentNames(), ::testing::Not(::testing::Contains("SPILLWAY_LOG")));
  EXPECT_EQ(EnvironmentValue("SPILLWAY_DIRS"), "/a=b");
  EXPECT_EQ(EnvironmentValue("SPILLWAY_LOG"), "");
  EXPECT_STREQ(EnvironmentSetting("dirs"), "/a=b");
  EXPECT_EQ(EnvironmentSetting("spillway"), nullptr) << "empty is as if not set";
  EXPECT_EQ(EnvironmentSetting("log"), nullptr);
  ::unsetenv("SPILLWAY_DIRS");
  ::unsetenv("SPILLWAY");
}

TEST(EnvironmentTest, AVariableIsThePrefixAndTheName) {
  EXPECT_EQ(VariableOf("gpu_memory"), "SPILLWAY_GPU_MEMORY");
  EXPECT_EQ(VariableOf("spillway"), "SPILLWAY");
}

}  // namespace
}  // namespace spillway::integration
