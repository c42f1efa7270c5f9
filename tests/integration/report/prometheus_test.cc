#include "integration/report/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/report/metrics_helpers.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const PrometheusLabels kLabels = {3, 42, {}};

Metrics WithIteration() {
  Metrics metrics = TwoDevices();
  metrics.devices[1].steady.iteration_seconds = 0.25;
  metrics.devices[1].steady.forecast.ideal_seconds = 0.2;
  return metrics;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(PrometheusTest, SamplesHaveDeviceRankAndProcess) {
  const std::string text = PrometheusText(WithIteration(), kLabels);
  EXPECT_THAT(text, HasSubstr("\nspillway_budget_bytes{device=\"1\",rank=\"3\",pid=\"42\"} 2147483648\n"));
  EXPECT_THAT(
      text,
      HasSubstr("\nspillway_spilled_bytes_total{device=\"0\",tier=\"disk\",rank=\"3\",pid=\"42\"} 200\n"));
  EXPECT_THAT(text, HasSubstr("\nspillway_disk_written_bytes_total{rank=\"3\",pid=\"42\"} 4096\n"));
  EXPECT_THAT(text, HasSubstr("\nspillway_uptime_seconds{rank=\"3\",pid=\"42\"} 12.5\n"));
}

TEST(PrometheusTest, SamplesNameTheJobAndItsUserWhereTheyAreKnown) {
  PrometheusLabels labels = kLabels;
  labels.identity = {"4711_3", "a\"b"};
  EXPECT_THAT(
      PrometheusText(TwoDevices(), labels),
      HasSubstr("\nspillway_uptime_seconds{rank=\"3\",pid=\"42\",job_id=\"4711_3\",user=\"a\\\"b\"} 12.5\n"));
  labels.identity.job = "";
  EXPECT_THAT(PrometheusText(TwoDevices(), labels),
              HasSubstr("\nspillway_uptime_seconds{rank=\"3\",pid=\"42\",user=\"a\\\"b\"} 12.5\n"));
}

TEST(PrometheusTest, TheWriteBudgetIsThereWhereThereIsOne) {
  Metrics metrics = TwoDevices();
  EXPECT_THAT(PrometheusText(metrics, kLabels), Not(HasSubstr("write_budget")));
  metrics.disk.write_budget_bytes = 500;
  metrics.disk.write_budget_left_bytes = 300;
  const std::string text = PrometheusText(metrics, kLabels);
  EXPECT_THAT(text, HasSubstr("\nspillway_write_budget_bytes{rank=\"3\",pid=\"42\"} 500\n"));
  EXPECT_THAT(text, HasSubstr("\nspillway_write_budget_left_bytes{rank=\"3\",pid=\"42\"} 300\n"));
}

TEST(PrometheusTest, PausesAreThereOnceThereWasOne) {
  Metrics metrics = TwoDevices();
  EXPECT_THAT(PrometheusText(metrics, kLabels), Not(HasSubstr("pause")));
  metrics.pause.Add({.clean_bytes = 100, .host_bytes = 200, .dropped_bytes = 50, .nanos = 1'500'000'000});
  metrics.pause.outside_nanos = 2'000'000'000;
  const std::string text = PrometheusText(metrics, kLabels);
  EXPECT_THAT(text, HasSubstr("\nspillway_pauses_total{rank=\"3\",pid=\"42\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nspillway_paused_bytes_total{way=\"host\",rank=\"3\",pid=\"42\"} 200\n"));
  EXPECT_THAT(text, HasSubstr("\nspillway_paused_bytes_total{way=\"dropped\",rank=\"3\",pid=\"42\"} 50\n"));
  EXPECT_THAT(text, HasSubstr("\nspillway_pausing_seconds_total{rank=\"3\",pid=\"42\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("\nspillway_paused_seconds_total{rank=\"3\",pid=\"42\"} 2\n"));
}

TEST(PrometheusTest, DirectoriesHaveTheirOwnSamples) {
  Metrics metrics = TwoDevices();
  io::DirectoryStats directory;
  directory.path = "/a\"b";
  directory.errors = 3;
  directory.bytes_read = 7;
  directory.bytes_written = 5'000'000'000;
  directory.closed = true;
  metrics.disk.directories = {directory};
  const std::string text = PrometheusText(metrics, kLabels);
  EXPECT_THAT(
      text, HasSubstr("\nspillway_directory_errors_total{directory=\"/a\\\"b\",rank=\"3\",pid=\"42\"} 3\n"));
  EXPECT_THAT(
      text,
      HasSubstr("spillway_directory_read_bytes_total{directory=\"/a\\\"b\",rank=\"3\",pid=\"42\"} 7\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "spillway_directory_written_tb_per_day{directory=\"/a\\\"b\",rank=\"3\",pid=\"42\"} 34.56\n"));
  EXPECT_THAT(text,
              HasSubstr("\nspillway_directory_closed{directory=\"/a\\\"b\",rank=\"3\",pid=\"42\"} 1\n"));
}

TEST(PrometheusTest, TimesAreSeconds) {
  const std::string text = PrometheusText(TwoDevices(), kLabels);
  EXPECT_THAT(text, HasSubstr("{device=\"0\",cause=\"chunks\",rank=\"3\",pid=\"42\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("\nspillway_throttled_seconds_total{device=\"0\",rank=\"3\",pid=\"42\"} 7\n"));
}

TEST(PrometheusTest, WhatIsNotKnownHasNoSample) {
  EXPECT_THAT(PrometheusText(TwoDevices(), kLabels), Not(HasSubstr("spillway_iteration")));
  const std::string text = PrometheusText(WithIteration(), kLabels);
  EXPECT_THAT(text, HasSubstr("\nspillway_iteration_seconds{device=\"1\",rank=\"3\",pid=\"42\"} 0.25\n"));
  EXPECT_THAT(text, Not(HasSubstr("spillway_iteration_seconds{device=\"0\"")));
  EXPECT_THAT(text, Not(HasSubstr("bound_seconds")));
  EXPECT_THAT(PrometheusText(Metrics(), kLabels), Not(HasSubstr("spillway_budget_bytes")));
}

// The rules of promtool check metrics, and of the text format: metrics described once, before their samples,
// which stand together; no sample twice; names in base units, counters alone ending in _total.
TEST(PrometheusTest, KeepsTheRulesOfNamesAndOfTheFormat) {
  const PrometheusLabels known = {3, 42, {"4711", "ada"}};
  const std::regex name_rule("spillway_[a-z_]+"), sample_rule(R"(([a-z_]+)\{([^}]*)\} (\S+))");
  const std::regex label_rule(R"(([a-z_]+="[^"\\]*")(,[a-z_]+="[^"\\]*")*)");
  const std::set<std::string> units = {"bytes",    "seconds", "launches",   "evictions",
                                       "arrivals", "faults",  "prefetches", "info"};
  std::map<std::string, std::string> types;
  std::set<std::string> helped, sampled;
  std::string now;
  for (const std::string& line : LinesOf(PrometheusText(WithIteration(), known))) {
    std::istringstream words(line);
    std::string mark, kind, name, rest;
    if (line.starts_with("#")) {
      words >> mark >> kind >> name;
      std::getline(words, rest);
      ASSERT_TRUE(std::regex_match(name, name_rule)) << line;
      if (kind == "HELP") {
        ASSERT_TRUE(helped.insert(name).second) << "twice: " << line;
        EXPECT_GT(rest.size(), 5u) << line;
        now = name;
      } else {
        ASSERT_EQ(kind, "TYPE");
        ASSERT_EQ(name, now) << line;
        types[name] = rest.substr(1);
        EXPECT_EQ(rest == " counter", name.ends_with("_total")) << line;
        EXPECT_TRUE(rest == " counter" || rest == " gauge") << line;
        std::string unit = name.ends_with("_total") ? name.substr(0, name.size() - 6) : name;
        unit = unit.substr(unit.rfind('_') + 1);
        EXPECT_TRUE(units.contains(unit)) << line;
      }
      continue;
    }
    std::smatch parts;
    ASSERT_TRUE(std::regex_match(line, parts, sample_rule)) << line;
    EXPECT_EQ(parts[1], now) << "apart from its description: " << line;
    EXPECT_TRUE(types.contains(parts[1])) << line;
    EXPECT_TRUE(std::regex_match(parts[2].str(), label_rule)) << line;
    EXPECT_TRUE(sampled.insert(parts[1].str() + parts[2].str()).second) << "twice: " << line;
    const std::string value = parts[3].str();
    char* end = nullptr;
    std::strtod(value.c_str(), &end);
    EXPECT_EQ(*end, '\0') << line;
  }
  EXPECT_GT(sampled.size(), 50u);
  EXPECT_TRUE(PrometheusText(WithIteration(), kLabels).ends_with("\n"));
}

// Debian's promtool (package prometheus) is the judge where it is installed.
TEST(PrometheusTest, PromtoolAcceptsItWithoutAWarning) {
  if (std::system("command -v promtool > /dev/null") != 0) GTEST_SKIP() << "promtool is not installed";
  const std::string path = ::testing::TempDir() + "/spillway_prometheus_test.prom";
  std::ofstream(path) << PrometheusText(WithIteration(), kLabels);
  const std::string said = path + ".said";
  EXPECT_EQ(std::system(("promtool check metrics < " + path + " > " + said + " 2>&1").c_str()), 0);
  std::ostringstream words;
  words << std::ifstream(said).rdbuf();
  EXPECT_EQ(words.str(), "");
  std::remove(path.c_str());
  std::remove(said.c_str());
}

}  // namespace
}  // namespace spillway::integration
