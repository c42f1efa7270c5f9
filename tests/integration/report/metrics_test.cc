#include "integration/report/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/integration/report/metrics_helpers.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsJsonTest, HasTheKeysThatReadersRelyOn) {
  const auto json = nlohmann::json::parse(MetricsJson(TwoDevices()));
  for (const char* key : {"version",
                          "budget_bytes",
                          "budget_in_force_bytes",
                          "peak_bytes",
                          "spilled_bytes",
                          "host_spilled_bytes",
                          "disk_spilled_bytes",
                          "fetched_bytes",
                          "host_fetched_bytes",
                          "disk_fetched_bytes",
                          "disk_written_bytes",
                          "disk_read_bytes",
                          "prefetched_bytes",
                          "prefetch_in_time_bytes",
                          "launches",
                          "slow_launches",
                          "evictions",
                          "faults",
                          "stall_seconds",
                          "pinned_bytes",
                          "pinned_bytes_by_reason",
                          "evictions_ended",
                          "newer_calls",
                          "devices",
                          "seconds",
                          "pid"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

TEST(MetricsJsonTest, PausesAreThereOnceThereWasOne) {
  Metrics metrics = TwoDevices();
  EXPECT_FALSE(nlohmann::json::parse(MetricsJson(metrics)).contains("pause"));
  metrics.pause.Add({.clean_bytes = 100});
  EXPECT_EQ(nlohmann::json::parse(MetricsJson(metrics))["pause"]["clean_bytes"], 100);
}

TEST(MetricsJsonTest, TheWriteBudgetIsThereWhereThereIsOne) {
  Metrics metrics = TwoDevices();
  EXPECT_FALSE(nlohmann::json::parse(MetricsJson(metrics)).contains("write_budget_bytes"));
  EXPECT_THAT(Summary(metrics), Not(HasSubstr("write budget")));
  metrics.disk.write_budget_bytes = 5 << 20;
  metrics.disk.write_budget_left_bytes = 3 << 20;
  const auto json = nlohmann::json::parse(MetricsJson(metrics));
  EXPECT_EQ(json["write_budget_bytes"], 5 << 20);
  EXPECT_EQ(json["write_budget_left_bytes"], 3 << 20);
  EXPECT_THAT(Summary(metrics), HasSubstr("; 3.00 MiB of the write budget left"));
}

TEST(MetricsJsonTest, TopLevelIsTheSumOfTheDevices) {
  const auto json = nlohmann::json::parse(MetricsJson(TwoDevices()));
  EXPECT_EQ(json["spilled_bytes"], 600);
  EXPECT_EQ(json["peak_bytes"], uint64_t{2} << 30);
  EXPECT_EQ(json["disk_written_bytes"], 4096);
  EXPECT_EQ(json["unknown_kernel_launches"], 3);
  EXPECT_DOUBLE_EQ(json["stall_seconds"]["chunks"], 3.0);
  EXPECT_DOUBLE_EQ(json["stall_seconds"]["arrival"], 0.25);
  EXPECT_DOUBLE_EQ(json["stall_seconds_total"], 3.25);
  EXPECT_DOUBLE_EQ(json["devices"][0]["throttled_seconds"], 7.0);
  ASSERT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["devices"][1]["device"], 1);
  EXPECT_EQ(json["devices"][1]["spilled_bytes"], 300);
  EXPECT_EQ(json["devices"][1]["plans"], 2);
  EXPECT_EQ(json["devices"][0]["plan_iteration_launches"], 186);
  uint64_t pinned = 0;
  for (const auto& [reason, bytes] : json["pinned_bytes_by_reason"].items()) pinned += bytes.get<uint64_t>();
  EXPECT_EQ(pinned, 10u);
  EXPECT_EQ(json["pinned_bytes_by_reason"].size(), static_cast<size_t>(allocator::kPinReasons));
  EXPECT_EQ(json["largest_set_bytes"], 18);
}

TEST(MetricsJsonTest, SaysByWhichCallEvictionsEnded) {
  Metrics metrics = TwoDevices();
  EXPECT_EQ(nlohmann::json::parse(MetricsJson(metrics))["evictions_ended"], "");
  metrics.evictions_ended = "cuLaunch";
  metrics.newer_calls = 3;
  const auto json = nlohmann::json::parse(MetricsJson(metrics));
  EXPECT_EQ(json["evictions_ended"], "cuLaunch");
  EXPECT_EQ(json["newer_calls"], 3);
}

TEST(SummaryTest, SaysPeakBudgetTrafficStallsAndWear) {
  const std::string text = Summary(TwoDevices());
  for (const char* part :
       {"peak 2.00 GiB of a budget of 4.00 GiB", "moved out 600 B (host 200 B, disk 400 B)", "back 140 B",
        "stalled 3.0 s for GPU memory, 0.2 s for bytes", "the GPU had to wait 1.8 s",
        "SSD bytes written 4.00 KiB"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(SummaryTest, SaysTheBudgetInForceAndThatItFell) {
  Metrics metrics = TwoDevices();
  EXPECT_THAT(Summary(metrics), HasSubstr("of a budget of 4.00 GiB; moved out"));
  metrics.devices[1].stats.budget_in_force_bytes = uint64_t{1} << 30;
  EXPECT_THAT(Summary(metrics), HasSubstr("of a budget of 4.00 GiB; moved out"))
      << "a limit of the job's own";
  metrics.devices[1].stats.driver_lacks_bytes = uint64_t{1} << 30;
  EXPECT_THAT(Summary(metrics),
              HasSubstr("of a budget of 4.00 GiB (3.00 GiB at the end; the GPU has less for it); moved out"));
}

TEST(SummaryTest, SaysWhatLaunchesReachedInHostMemory) {
  Metrics metrics = TwoDevices();
  EXPECT_THAT(Summary(metrics), Not(HasSubstr("reached")));
  metrics.devices[0].stats.reached_launches = 3;
  metrics.devices[0].stats.reached_bytes = uint64_t{2} << 30;
  EXPECT_THAT(Summary(metrics), HasSubstr("; 3 launches reached 2.00 GiB in host memory; moved out"));
}

TEST(SummaryTest, IsSilentWithoutBlocksAndShortWithoutTraffic) {
  EXPECT_EQ(Summary(Metrics{}), "");
  Metrics quiet;
  quiet.devices.push_back({});
  quiet.devices[0].stats.peak_chunk_bytes = 1;
  EXPECT_THAT(Summary(quiet), HasSubstr("nothing was moved"));
}

// docs/metrics.md names each key, and no other.
TEST(MetricsPageTest, NamesEachKey) {
  std::ifstream page(SPILLWAY_SOURCE_DIR "/docs/metrics.md");
  std::set<std::string> named;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `")) continue;
    const size_t end = line.find(" | ", 2);
    for (size_t at = 0; (at = line.find('`', at)) < end; ++at) {
      const size_t close = line.find('`', at + 1);
      named.insert(line.substr(at + 1, close - at - 1));
      at = close;
    }
  }
  Metrics metrics = TwoDevices();
  ObservedIteration iteration;
  iteration.budgets.push_back({});
  metrics.devices[0].observed = iteration;
  metrics.devices[0].steady = {10, 4, 186, {1, 2, 3}, {}};
  metrics.devices[0].stats.disk_in_rate = 1e9;
  metrics.disk.write_budget_bytes = 1;
  metrics.disk.directories.emplace_back();
  metrics.pause.pauses = 1;
  metrics.devices[0].stats.link_measurements = 1;
  std::set<std::string> written;
  const std::function<void(const nlohmann::json&)> collect = [&](const nlohmann::json& json) {
    for (const auto& [key, value] : json.items()) {
      if (json.is_object()) written.insert(key);
      const bool by_cause = key == "stall_seconds" || key == "lost_seconds" ||
                            key == "pinned_bytes_by_reason" || key == "bytes_per_second" || key == "link" ||
                            key == "waits";
      if (value.is_structured() && !by_cause) collect(value);
    }
  };
  collect(nlohmann::json::parse(MetricsJson(metrics)));
  EXPECT_EQ(named, written);
}

TEST(StatusTextTest, SaysWhereTheBytesAreAndHowItGoes) {
  Metrics metrics = TwoDevices();
  metrics.devices[0].stats.resident_bytes = 1 << 20;
  EXPECT_EQ(
      StatusText(metrics),
      "status: on the GPU 1.00 MiB of 4.00 GiB, host 0 B, disk 0 B; moved out 600 B, back 140 B; stalled "
      "26.0 % of 12.5 s");
  metrics.iterations_per_second = 2.5;
  EXPECT_THAT(StatusText(metrics), ::testing::EndsWith("; 2.50 iterations/s"));
}

Metrics WithStep(double iteration_seconds, double bound_seconds) {
  Metrics metrics = TwoDevices();
  metrics.devices.resize(1);
  DeviceMetrics& device = metrics.devices[0];
  device.steady.forecast.bound_seconds = bound_seconds;
  device.steady.launches = 186;
  device.steady.iterations = 12;
  device.steady.iteration_seconds = iteration_seconds;
  device.steady.per_iteration.disk_fetched_bytes = device.steady.per_iteration.fetched_bytes = 3 << 20;
  device.steady.per_iteration.prefetched_bytes = 3 << 20;
  device.steady.per_iteration.in_time_bytes = 3 << 19;
  device.steady.per_iteration.lost_arrival_nanos = 250'000'000;
  return metrics;
}

TEST(IterationLinesTest, SayWhatAnIterationTakesMovesAndWaits) {
  EXPECT_THAT(
      IterationLines(WithStep(2.5, 2)),
      ::testing::ElementsAre(
          "iteration on GPU 0: 186 launches, 2.500 s, at least 80.0 % of bound (no plan is faster than 2.000 "
          "s "
          "here); "
          "moves out nothing, back disk 3.00 MiB; 50.0 % of what came back was there in time; the GPU "
          "had to wait 0.000 s for GPU memory, 0.250 s for bytes, 0.000 s for run-ahead"));
}

TEST(IterationLinesTest, NearTheBoundNoMoreThanTwoPointsCanBeMissing) {
  EXPECT_THAT(IterationLines(WithStep(2.5, 2.46)).at(0), HasSubstr("s, 98.4 % of bound ("));
  EXPECT_THAT(IterationLines(WithStep(2.5, 2.44)).at(0), HasSubstr("s, at least 97.6 % of bound ("));
}

TEST(IterationLinesTest, NameAForecastThatTheIterationDidNotBeat) {
  Metrics metrics = WithStep(2.5, 2);
  metrics.devices[0].steady.forecast.plan_seconds = 2.25;
  EXPECT_THAT(IterationLines(metrics).at(0), HasSubstr(", the plan's forecast was 2.250 s; moves out"));
  metrics.devices[0].steady.forecast.plan_seconds = 2.75;
  EXPECT_THAT(IterationLines(metrics).at(0), ::testing::Not(HasSubstr("forecast")));
}

TEST(IterationLinesTest, SayNothingThatIsNotKnown) {
  EXPECT_THAT(IterationLines(TwoDevices()), ::testing::IsEmpty());
  const std::vector<std::string> lines = IterationLines(WithStep(2.5, 0));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], ::testing::Not(HasSubstr("bound")));
  EXPECT_FALSE(nlohmann::json::parse(MetricsJson(TwoDevices()))["devices"][1].contains("iteration"));
}

TEST(PercentOfBoundTest, IsNeverOverAHundred) {
  EXPECT_DOUBLE_EQ(PercentOfBound(WithStep(2, 1).devices[0]).value(), 50);
  EXPECT_DOUBLE_EQ(PercentOfBound(WithStep(2, 2.02).devices[0]).value(), 100) << "the noise of samples";
  EXPECT_FALSE(PercentOfBound(WithStep(2, 3).devices[0]).has_value()) << "then the bound is none";
  EXPECT_FALSE(PercentOfBound(TwoDevices().devices[0]).has_value());
}

}  // namespace
}  // namespace spillway::integration
