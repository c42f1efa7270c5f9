#include "integration/report/pause_metrics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace spillway::integration {
namespace {

TEST(PauseMetricsTest, PausesAddUp) {
  PauseMetrics metrics;
  metrics.Add({.clean_bytes = 100, .disk_bytes = 200, .nanos = 1'500'000'000});
  metrics.Add({.host_bytes = 300, .dropped_bytes = 50});
  metrics.outside_nanos = 2'000'000'000;
  metrics.paused_now = true;
  const auto json = PauseJson(metrics);
  EXPECT_EQ(
      json.dump(),
      R"({"pauses":2,"paused_now":true,"clean_bytes":100,"host_bytes":300,"disk_bytes":200,"dropped_bytes":50,)"
      R"("pausing_seconds":1.5,"paused_seconds":2.0})");
}

TEST(PauseMetricsTest, OnePauseHasAFailureOnlyWhereThereWasOne) {
  allocator::PauseStats stats;
  stats.pinned_bytes = 7;
  stats.remaining_bytes = 7;
  const auto json = PauseJson(stats);
  EXPECT_EQ(json["pinned_bytes"], 7);
  EXPECT_EQ(json["remaining_bytes"], 7);
  EXPECT_FALSE(json.contains("failure"));
  stats.failure = "no space";
  EXPECT_EQ(PauseJson(stats)["failure"], "no space");
}

}  // namespace
}  // namespace spillway::integration
