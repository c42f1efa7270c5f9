#include "integration/engine/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "integration/engine/reporter.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

Figures TwoDevices() {
  Figures figures;
  DeviceFigures first;
  first.device = 0;
  first.stats.budget_bytes = uint64_t{2} << 30;
  first.stats.peak_device_bytes = uint64_t{1} << 30;
  first.stats.peak_chunk_bytes = 900 << 20;
  first.stats.spilled_bytes = 300;
  first.stats.host_spilled_bytes = 100;
  first.stats.disk_spilled_bytes = 200;
  first.stats.fetched_bytes = 70;
  first.stats.stall_room_nanos = 1'500'000'000;
  first.stats.held_bytes_by_reason[1] = 5;
  first.plan_period_launches = 186;
  DeviceFigures second = first;
  second.device = 1;
  second.plans = 2;
  second.stats.stall_disk_nanos = 250'000'000;
  figures.devices = {first, second};
  figures.disk = {4096, 2048};
  figures.seconds = 12.5;
  return figures;
}

TEST(MetricsJsonTest, HasTheKeysThatReadersRelyOn) {
  const auto json = nlohmann::json::parse(MetricsJson(TwoDevices()));
  for (const char* key : {"version",
                          "budget_bytes",
                          "peak_bytes",
                          "spilled_bytes",
                          "host_spilled_bytes",
                          "disk_spilled_bytes",
                          "fetched_bytes",
                          "host_fetched_bytes",
                          "disk_fetched_bytes",
                          "ssd_written_bytes",
                          "ssd_read_bytes",
                          "prefetched_bytes",
                          "prefetch_in_time_bytes",
                          "launches",
                          "slow_launches",
                          "evictions",
                          "faults",
                          "stall_seconds",
                          "held_bytes",
                          "held_bytes_by_reason",
                          "devices",
                          "seconds",
                          "pid"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

TEST(MetricsJsonTest, TopLevelIsTheSumOfTheDevices) {
  const auto json = nlohmann::json::parse(MetricsJson(TwoDevices()));
  EXPECT_EQ(json["spilled_bytes"], 600);
  EXPECT_EQ(json["peak_bytes"], uint64_t{2} << 30);
  EXPECT_EQ(json["ssd_written_bytes"], 4096);
  EXPECT_DOUBLE_EQ(json["stall_seconds"]["room"], 3.0);
  EXPECT_DOUBLE_EQ(json["stall_seconds"]["disk"], 0.25);
  EXPECT_DOUBLE_EQ(json["stall_seconds_total"], 3.25);
  ASSERT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["devices"][1]["device"], 1);
  EXPECT_EQ(json["devices"][1]["spilled_bytes"], 300);
  EXPECT_EQ(json["devices"][1]["plans"], 2);
  EXPECT_EQ(json["devices"][0]["plan_period_launches"], 186);
  uint64_t held = 0;
  for (const auto& [reason, bytes] : json["held_bytes_by_reason"].items()) held += bytes.get<uint64_t>();
  EXPECT_EQ(held, 10u);
}

TEST(SummaryTest, SaysPeakBudgetTrafficStallsAndWear) {
  const std::string text = Summary(TwoDevices());
  for (const char* part :
       {"peak 2.00 GiB of a budget of 4.00 GiB", "moved out 600 B (host 200 B, disk 400 B)", "back 140 B",
        "stalled 3.0 s for room", "SSD bytes written 4.00 KiB"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(SummaryTest, IsSilentWithoutBlocksAndShortWithoutTraffic) {
  EXPECT_EQ(Summary(Figures{}), "");
  Figures quiet;
  quiet.devices.push_back({});
  quiet.devices[0].stats.peak_chunk_bytes = 1;
  EXPECT_THAT(Summary(quiet), HasSubstr("nothing was moved"));
}

TEST(BytesTextTest, ChoosesTheUnit) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.50 KiB");
  EXPECT_EQ(BytesText(uint64_t{3} << 40), "3.00 TiB");
}

class MetricsFileTest : public ::testing::Test {
 protected:
  MetricsFileTest() {
    char name[] = "/tmp/spillway_report_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~MetricsFileTest() override { std::filesystem::remove_all(folder_); }
  static std::string Text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::string folder_;
};

TEST_F(MetricsFileTest, IsReplacedAsAWhole) {
  const std::string path = folder_ + "/metrics.json";
  ASSERT_TRUE(WriteFileAtomically(path, "one").ok());
  ASSERT_TRUE(WriteFileAtomically(path, "two, longer").ok());
  EXPECT_EQ(Text(path), "two, longer");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(MetricsFileTest, AFolderThatIsNotThereIsAnError) {
  const absl::Status status = WriteFileAtomically(folder_ + "/none/metrics.json", "x");
  EXPECT_THAT(std::string(status.message()), HasSubstr("/none/metrics.json"));
}

TEST_F(MetricsFileTest, TheReporterWritesAtTheEnd) {
  const std::string pattern = folder_ + "/%p-%r.json";
  Reporter reporter({pattern, 3}, [] { return TwoDevices(); });
  reporter.Finish();
  const std::string path = Reporter::MetricsPath(pattern, 3);
  EXPECT_EQ(path, folder_ + "/" + std::to_string(::getpid()) + "-3.json");
  EXPECT_EQ(nlohmann::json::parse(Text(path))["spilled_bytes"], 600);
}

TEST_F(MetricsFileTest, TheSummaryIsPrintedOnce) {
  ::testing::internal::CaptureStderr();
  {
    Reporter reporter(Reporter::Settings{}, [] { return TwoDevices(); });
    reporter.Finish();
    reporter.Finish();
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::StartsWith("spillway: summary: peak"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

}  // namespace
}  // namespace spillway::integration
