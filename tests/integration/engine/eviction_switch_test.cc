#include "integration/engine/eviction_switch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace spillway::integration {
namespace {

using testing::HasSubstr;

const char* g_unwrapped = nullptr;  // what the preload has met; null: nothing

int FirstUnwrapped(char* name, size_t bytes) {
  if (g_unwrapped == nullptr) return -1;
  std::snprintf(name, bytes, "%s", g_unwrapped);
  return 12000;
}

class EvictionSwitchTest : public testing::Test {
 protected:
  EvictionSwitchTest() { shim_.first_unwrapped = &FirstUnwrapped; }
  ~EvictionSwitchTest() override { g_unwrapped = nullptr; }
  EvictionSwitch Make(const char* missing = "") {
    return EvictionSwitch(&shim_, &settings_, &devices_, missing);
  }
  static std::string WordsOf(const absl::Status& status) { return std::string(status.message()); }

  spillway_shim shim_ = {};
  Settings settings_;
  Devices devices_;  // none
};

TEST_F(EvictionSwitchTest, BlocksMayLeaveWhileEachCallIsSeen) {
  const EvictionSwitch evictions = Make();
  EXPECT_TRUE(evictions.Followable().ok());
  EXPECT_TRUE(evictions.MayEvict());
  EXPECT_FALSE(evictions.ended());
  EXPECT_EQ(evictions.ended_by(), nullptr);
}

TEST_F(EvictionSwitchTest, WhatGoesUnseenIsNamed) {
  const EvictionSwitch lacking = Make("cuLaunchKernel, cuMemcpyAsync");
  EXPECT_THAT(WordsOf(lacking.Followable()), HasSubstr("calls to cuLaunchKernel, cuMemcpyAsync cannot"));
  EXPECT_FALSE(lacking.MayEvict());

  const EvictionSwitch evictions = Make();
  g_unwrapped = "cuLaunchKernel_v9";
  EXPECT_THAT(WordsOf(evictions.Followable()), HasSubstr("calls to cuLaunchKernel_v9 cannot"));
  EXPECT_FALSE(evictions.MayEvict());
  shim_.flags = SPILLWAY_SHIM_DRIVER_ALREADY_LOADED;
  EXPECT_THAT(WordsOf(evictions.Followable()), HasSubstr("a driver that was loaded before"));
  EXPECT_FALSE(evictions.MayEvict());
}

TEST_F(EvictionSwitchTest, SettingsMayKeepBlocksThere) {
  settings_.on_full = OnFull::kError;
  EXPECT_FALSE(Make().MayEvict());
  EXPECT_TRUE(Make().Followable().ok());
  settings_.on_full = OnFull::kSpill;
  settings_.spillway = Mode::kObserve;
  EXPECT_FALSE(Make().MayEvict());
}

TEST_F(EvictionSwitchTest, TheFirstReasonCounts) {
  EvictionSwitch evictions = Make();
  EXPECT_TRUE(evictions.End("cuGraphNewThing").ok());
  EXPECT_TRUE(evictions.End("cuOther").ok());
  EXPECT_TRUE(evictions.ended());
  EXPECT_FALSE(evictions.MayEvict());
  ASSERT_NE(evictions.ended_by(), nullptr);
  EXPECT_EQ(*evictions.ended_by(), "cuGraphNewThing");
  EXPECT_TRUE(evictions.Followable().ok()) << "blocks are handed out all the same: they stay on the GPU";
}

TEST_F(EvictionSwitchTest, ARefusalOfMemorySaysWhatEndedEvictions) {
  EvictionSwitch evictions = Make();
  const absl::Status refused = absl::ResourceExhaustedError("2.0 GiB are not there");
  EXPECT_EQ(evictions.WithCause(refused), refused);
  evictions.End("cuGraphNewThing").IgnoreError();
  const absl::Status with_cause = evictions.WithCause(refused);
  EXPECT_TRUE(absl::IsResourceExhausted(with_cause));
  EXPECT_EQ(WordsOf(with_cause),
            "2.0 GiB are not there; evictions have ended, since cuGraphNewThing cannot be followed");
  const absl::Status other = absl::InvalidArgumentError("no such device");
  EXPECT_EQ(evictions.WithCause(other), other);
}

}  // namespace
}  // namespace spillway::integration
