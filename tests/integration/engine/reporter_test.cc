#include "integration/engine/reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/thread_state.h"
#include "tests/fakes/wait_until.h"
#include "tests/integration/report/metrics_helpers.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

class ReporterTest : public ReportFileTest {
 protected:
  // Its end may take as long as a busy machine makes it.
  Reporter::Options Patient() const {
    Reporter::Options options;
    options.metrics_file = folder_ + "/metrics.json";
    options.least_finish = tests::kPatience;
    return options;
  }
};

TEST_F(ReporterTest, WritesAtTheEnd) {
  const std::string pattern = folder_ + "/%p-%r.json";
  Reporter::Options options = Patient();
  options.metrics_file = pattern;
  options.local_rank = 3;
  Reporter reporter(options, [] { return TwoDevices(); });
  reporter.Finish();
  const std::string path = OutputFile::Expand(pattern, 3);
  EXPECT_EQ(path, folder_ + "/" + std::to_string(::getpid()) + "-3.json");
  EXPECT_EQ(nlohmann::json::parse(Text(path))["spilled_bytes"], 600);
}

TEST_F(ReporterTest, TheSummaryAndTheAdviceArePrintedOnce) {
  ::testing::internal::CaptureStderr();
  {
    Reporter reporter(Patient(), [] { return TwoDevices(); });
    reporter.Finish();
    reporter.Finish();
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::StartsWith("spillway: summary: peak"));
  EXPECT_THAT(text, HasSubstr("\nspillway: lost time: the GPU had to wait"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

// The data of a long run take more than the time that there is in any case.
TEST_F(ReporterTest, AFileThatTakesLongIsWaitedForUntilTheDeadline) {
  Reporter::Options options;
  options.least_finish = std::chrono::milliseconds(0);
  std::atomic<bool> written{false}, finished{false};
  options.writers.push_back([&, job = ::gettid()](const Metrics&, bool ended) {
    if (!ended) return;
    EXPECT_TRUE(tests::WaitUntil([&] { return finished.load() || tests::ThreadWaits(job); }));
    written.store(true);
  });
  ::testing::internal::CaptureStderr();
  Reporter reporter(options, [] { return TwoDevices(); });
  reporter.Finish(std::chrono::steady_clock::now() + tests::kPatience);
  finished.store(true);
  EXPECT_TRUE(written.load());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::Not(HasSubstr("interrupted")));
}

// What is left to itself must live on: nothing of it is freed.
struct LeftToItself {
  std::atomic<bool> stuck{true}, reached{false};
  std::unique_ptr<Reporter> reporter;
};

TEST_F(ReporterTest, AWritingThatIsCutOffIsReported) {
  static auto& all = *new std::vector<std::unique_ptr<LeftToItself>>;
  LeftToItself& left = *all.emplace_back(std::make_unique<LeftToItself>());
  Reporter::Options options = Patient();
  options.least_finish = std::chrono::milliseconds(1);
  options.writers.push_back([&left](const Metrics&, bool ended) {
    if (!ended) return;
    left.reached.store(true);
    left.reached.notify_one();
    left.stuck.wait(true);
  });
  ::testing::internal::CaptureStderr();
  left.reporter = std::make_unique<Reporter>(options, [] { return TwoDevices(); });
  left.reporter->Finish();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("spillway: the end of the process has interrupted the last write of metrics: "));
  left.reached.wait(false);  // where the machine was busy it goes on after Finish
  EXPECT_EQ(nlohmann::json::parse(Text(options.metrics_file))["spilled_bytes"], 600)
      << "small files come first";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "nothing beside it";
  left.stuck.store(false);
  left.stuck.notify_one();
}

TEST_F(ReporterTest, WritesNowAndThen) {
  Reporter::Options options = Patient();
  options.every = std::chrono::milliseconds(1);
  std::atomic<int> collected{0};
  Reporter reporter(options, [&collected] {
    ++collected;
    return TwoDevices();
  });
  ASSERT_TRUE(tests::WaitUntil([&] { return collected.load() >= 4; }));
  // Whenever one looks, there is a whole file.
  EXPECT_EQ(nlohmann::json::parse(Text(options.metrics_file))["spilled_bytes"], 600);
  reporter.Finish();
}

// A job that is killed before the first 10 s are over.
TEST_F(ReporterTest, WritesForTheFirstTimeSoon) {
  Reporter::Options options = Patient();
  options.first = std::chrono::milliseconds(1);
  options.sample_every = std::chrono::milliseconds(1);
  std::atomic<int> written{0};
  options.writers.push_back([&written](const Metrics&, bool ended) { written += ended ? 0 : 1; });
  std::atomic<int> collected{0};
  Reporter reporter(options, [&collected] {
    ++collected;
    return TwoDevices();
  });
  ASSERT_TRUE(tests::WaitUntil([&] { return collected.load() >= 10; }));
  EXPECT_EQ(written.load(), 1) << "and not again at each look";
  reporter.Finish();
  EXPECT_EQ(written.load(), 1);
}

// What the process does between its last iteration and its end is no part of an iteration.
TEST_F(ReporterTest, TheEndOfTheProcessMakesNoIterationLonger) {
  const std::thread::id job = std::this_thread::get_id();
  Reporter::Options options = Patient();
  options.sample_every = options.every = options.first = std::chrono::hours(1);
  std::atomic<bool> started{false}, ended{false};
  int iterations = 0;
  double seconds_at_end = 0;
  options.writers.push_back([&](const Metrics& metrics, bool at_end) {
    if (at_end) seconds_at_end = metrics.devices.at(0).steady.iteration_seconds;
  });
  Reporter reporter(options, [&] {
    const bool last = ended.load();
    // The looks are this test's and the last one; what the reporter sees by itself in between is nothing.
    if (std::this_thread::get_id() != job && !last) {
      started.store(true);
      return Metrics();
    }
    Metrics metrics = TwoDevices();
    metrics.seconds = last ? 1000 : 2 * iterations;
    metrics.devices.resize(1);
    metrics.devices[0].plan_iteration_launches = 10;
    metrics.devices[0].stats.launches = 10 * iterations;
    return metrics;
  });
  ASSERT_TRUE(tests::WaitUntil([&] { return started.load(); }));
  for (; iterations < 12; ++iterations) reporter.Collect();
  ended.store(true);
  reporter.Finish();
  EXPECT_DOUBLE_EQ(seconds_at_end, 2);
}

TEST(IterationRateTest, IsThatOfTheLastLooks) {
  IterationRate rate;
  Metrics metrics;
  metrics.devices.push_back({});
  metrics.devices[0].plan_iteration_launches = 10;
  const auto at = [&](double seconds, uint64_t launches) {
    metrics.seconds = seconds;
    metrics.devices[0].stats.launches = launches;
    return rate.Update(metrics);
  };
  EXPECT_EQ(at(0.5, 100), 0);                    // too short
  EXPECT_DOUBLE_EQ(at(10, 200), 2);              // 20 iterations in 10 s
  EXPECT_DOUBLE_EQ(at(20, 1200), 10);            // 100 iterations since the look before
  EXPECT_DOUBLE_EQ(at(20.5, 1300), 110 / 10.5);  // half a second is too short to forget that look
  metrics.devices[0].plan_iteration_launches = 0;
  EXPECT_EQ(at(30, 2000), 0);
}

}  // namespace
}  // namespace spillway::integration
