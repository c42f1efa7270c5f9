#include "integration/engine/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "integration/engine/reporter.h"
#include "integration/engine/status_signal.h"

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
  first.stats.lost_room_nanos = 400'000'000;
  first.stats.lost_read_nanos = 500'000'000;
  first.stats.held_back_nanos = 7'000'000'000;
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
  EXPECT_DOUBLE_EQ(json["devices"][0]["held_back_seconds"], 7.0);
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
        "stalled 3.0 s for room, 0.2 s for the disk", "the GPU had to wait 1.8 s",
        "SSD bytes written 4.00 KiB"}) {
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
    Reporter reporter(Reporter::Options{}, [] { return TwoDevices(); });
    reporter.Finish();
    reporter.Finish();
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::StartsWith("spillway: summary: peak"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(MetricsFileTest, TheReporterWritesNowAndThen) {
  Reporter::Options options;
  options.metrics_file = folder_ + "/metrics.json";
  options.every = std::chrono::milliseconds(1);
  std::atomic<int> collected{0};
  Reporter reporter(options, [&collected] {
    ++collected;
    return TwoDevices();
  });
  while (collected.load() < 4) std::this_thread::yield();
  // Whenever one looks, there is a whole file.
  EXPECT_EQ(nlohmann::json::parse(Text(options.metrics_file))["spilled_bytes"], 600);
  reporter.Finish();
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
  Figures figures = TwoDevices();
  ObservedStep step;
  step.budgets.push_back({});
  figures.devices[0].observed = step;
  figures.devices[0].steady = {10, 4, 186, {1, 2, 3}, {}};
  figures.devices[0].stats.disk_in_rate = 1e9;
  std::set<std::string> written;
  const std::function<void(const nlohmann::json&)> collect = [&](const nlohmann::json& json) {
    for (const auto& [key, value] : json.items()) {
      if (json.is_object()) written.insert(key);
      const bool by_cause = key == "stall_seconds" || key == "lost_seconds" ||
                            key == "held_bytes_by_reason" || key == "bytes_per_second" || key == "waits";
      if (value.is_structured() && !by_cause) collect(value);
    }
  };
  collect(nlohmann::json::parse(MetricsJson(figures)));
  EXPECT_EQ(named, written);
}

TEST(StatusTextTest, SaysWhereTheBytesAreAndHowItGoes) {
  Figures figures = TwoDevices();
  figures.devices[0].stats.resident_bytes = 1 << 20;
  EXPECT_EQ(
      StatusText(figures),
      "status: on the GPU 1.00 MiB of 4.00 GiB, host 0 B, disk 0 B; moved out 600 B, back 140 B; stalled "
      "26.0 % of 12.5 s");
  figures.steps_per_second = 2.5;
  EXPECT_THAT(StatusText(figures), ::testing::EndsWith("; 2.50 steps/s"));
}

// 10 launches a step, 2 s each, from second 100 on; each step brings 300 bytes back and waits 0.1 s for room.
allocator::ResidencyStats AfterSteps(double steps) {
  allocator::ResidencyStats stats;
  stats.launches = 1000 + static_cast<uint64_t>(steps * 10);
  stats.fetched_bytes = stats.disk_fetched_bytes = 5000 + static_cast<uint64_t>(steps * 300);
  stats.stall_room_nanos = static_cast<uint64_t>(steps * 1e8);
  return stats;
}

TEST(StepMeterTest, KnowsNothingBeforeThreeSteps) {
  StepMeter meter;
  EXPECT_EQ(meter.Steady().steps, 0);
  for (int i = 0; i <= 2; ++i) meter.Look(100 + 2 * i, 10, 0, AfterSteps(i));
  EXPECT_EQ(meter.Steady().steps, 0);
  meter.Look(106, 10, 0, AfterSteps(3));
  EXPECT_DOUBLE_EQ(meter.Steady().steps, 3);
  EXPECT_DOUBLE_EQ(meter.Steady().step_seconds, 2);
}

TEST(StepMeterTest, DividesWhatGrewByTheSteps) {
  StepMeter meter;
  for (int i = 0; i <= 20; ++i) meter.Look(100 + i, 10, 0, AfterSteps(i / 2.0));
  const SteadySteps steady = meter.Steady();
  EXPECT_DOUBLE_EQ(steady.step_seconds, 2);
  EXPECT_EQ(steady.per_step.fetched_bytes, 300u);
  EXPECT_EQ(steady.per_step.disk_fetched_bytes, 300u);
  EXPECT_EQ(steady.per_step.stall_room_nanos, 100'000'000u);
  EXPECT_EQ(steady.steps, std::floor(steady.steps)) << "whole steps where the looks allow it";
}

TEST(StepMeterTest, AStretchEndsWhereTheJobDoesSomethingElse) {
  StepMeter meter;
  for (int i = 0; i <= 10; ++i) meter.Look(100 + 2 * i, 10, 0, AfterSteps(i));
  // Five slow launches of something else, then the same step again, at half the speed.
  meter.Look(200, 0, 1, AfterSteps(10.5));
  EXPECT_DOUBLE_EQ(meter.Steady().step_seconds, 2) << "that of before";
  for (int i = 0; i <= 20; ++i) meter.Look(200 + 4 * i, 10, 1, AfterSteps(10.5 + i));
  EXPECT_DOUBLE_EQ(meter.Steady().step_seconds, 4);
}

TEST(StepMeterTest, LongJobsKeepFewLooks) {
  StepMeter meter;
  for (int i = 0; i <= 10'000; ++i) meter.Look(100 + 0.25 * i, 10, 0, AfterSteps(i / 8.0));
  EXPECT_NEAR(meter.Steady().step_seconds, 2, 0.01);
  EXPECT_GE(meter.Steady().steps, 500);
}

Figures WithStep(double step_seconds, double bound_seconds) {
  Figures figures = TwoDevices();
  figures.devices.resize(1);
  DeviceFigures& device = figures.devices[0];
  device.steady.forecast.bound_seconds = bound_seconds;
  device.steady.launches = 186;
  device.steady.steps = 12;
  device.steady.step_seconds = step_seconds;
  device.steady.per_step.disk_fetched_bytes = device.steady.per_step.fetched_bytes = 3 << 20;
  device.steady.per_step.prefetched_bytes = 3 << 20;
  device.steady.per_step.in_time_bytes = 3 << 19;
  device.steady.per_step.lost_read_nanos = 250'000'000;
  return figures;
}

TEST(StepLinesTest, SayWhatAStepTakesMovesAndWaits) {
  EXPECT_THAT(
      StepLines(WithStep(2.5, 2)),
      ::testing::ElementsAre(
          "step on GPU 0: 186 launches, 2.500 s, 80.0 % of bound (no plan is faster than 2.000 s here); "
          "moves out nothing, back disk 3.00 MiB; 50.0 % of what came back was there in time; the GPU "
          "had to wait 0.000 s for room, 0.250 s for bytes, 0.000 s for run-ahead"));
}

TEST(StepLinesTest, SayNothingThatIsNotKnown) {
  EXPECT_THAT(StepLines(TwoDevices()), ::testing::IsEmpty());
  const std::vector<std::string> lines = StepLines(WithStep(2.5, 0));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], ::testing::Not(HasSubstr("bound")));
  EXPECT_FALSE(nlohmann::json::parse(MetricsJson(TwoDevices()))["devices"][1].contains("step"));
}

TEST(PercentOfBoundTest, IsNeverOverAHundred) {
  EXPECT_DOUBLE_EQ(PercentOfBound(WithStep(2, 1).devices[0]).value(), 50);
  EXPECT_DOUBLE_EQ(PercentOfBound(WithStep(2, 2.02).devices[0]).value(), 100) << "the noise of samples";
  EXPECT_FALSE(PercentOfBound(WithStep(2, 3).devices[0]).has_value()) << "then the bound is none";
  EXPECT_FALSE(PercentOfBound(TwoDevices().devices[0]).has_value());
}

TEST(StepRateTest, IsThatOfTheLastLooks) {
  StepRate rate;
  Figures figures;
  figures.devices.push_back({});
  figures.devices[0].plan_period_launches = 10;
  const auto at = [&](double seconds, uint64_t launches) {
    figures.seconds = seconds;
    figures.devices[0].stats.launches = launches;
    return rate.Update(figures);
  };
  EXPECT_EQ(at(0.5, 100), 0);                    // too short
  EXPECT_DOUBLE_EQ(at(10, 200), 2);              // 20 steps in 10 s
  EXPECT_DOUBLE_EQ(at(20, 1200), 10);            // 100 steps since the look before
  EXPECT_DOUBLE_EQ(at(20.5, 1300), 110 / 10.5);  // half a second is too short to forget that look
  figures.devices[0].plan_period_launches = 0;
  EXPECT_EQ(at(30, 2000), 0);
}

TEST(StatusSignalTest, WakesAndLeavesOthersHandlersAlone) {
  ASSERT_NE(::signal(SIGUSR1, SIG_IGN), SIG_ERR);
  EXPECT_FALSE(InstallStatusSignal());
  EXPECT_EQ(::signal(SIGUSR1, SIG_DFL), SIG_IGN);
  ASSERT_TRUE(InstallStatusSignal());
  EXPECT_FALSE(InstallStatusSignal());  // it is ours now, which is somebody's
  const int wake = ::eventfd(0, EFD_NONBLOCK);
  SetStatusWake(wake);
  EXPECT_FALSE(TakeStatusRequest());
  ::raise(SIGUSR1);
  ::raise(SIGUSR1);
  pollfd ready = {wake, POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 1);
  EXPECT_TRUE(TakeStatusRequest());
  EXPECT_FALSE(TakeStatusRequest());
  SetStatusWake(-1);
  ::raise(SIGUSR1);  // wakes nobody, ends nobody
  EXPECT_TRUE(TakeStatusRequest());
  ::close(wake);
  ::signal(SIGUSR1, SIG_DFL);
}

TEST(ObservationTest, WithoutARepeatNothingIsSaid) {
  const ObservedStep step = ObserveStep(nullptr, {}, uint64_t{1} << 30);
  EXPECT_EQ(step.launches, 0u);
  EXPECT_THAT(ObservationLines(0, step), ::testing::ElementsAre(HasSubstr("no step repeated")));
}

}  // namespace
}  // namespace spillway::integration
