#include "integration/report/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/report/kernel_name.h"
#include "io/os/clock.h"
#include "policy/trace/recorded_workload.h"
#include "tests/integration/report/metrics_helpers.h"

namespace spillway::integration {
namespace {

using allocator::BlockId;
using allocator::MoveKind;
using allocator::StallCause;
using nlohmann::json;

class FakeClock : public os::Clock {
 public:
  int64_t NowNanos() const override { return nanos; }
  int64_t nanos = 1'000'000'000;
};

class FakeSource : public RunSource {
 public:
  explicit FakeSource(FakeClock* clock) : clock_(clock) {}
  std::optional<DeviceSample> Sample(int device) const override {
    ++looked;
    clock_->nanos += look_nanos;
    const auto found = looks.find(device);
    return found == looks.end() ? std::nullopt : std::optional(found->second);
  }
  std::vector<allocator::LargeBlock> LargestBlocks(int, size_t most) const override {
    ++asked_largest;
    return {largest.begin(), largest.begin() + static_cast<std::ptrdiff_t>(std::min(most, largest.size()))};
  }
  std::vector<io::DirectoryStats> Directories() const override { return directories; }
  std::vector<ReportedPause> Pauses() const override { return pauses; }
  std::string NameOfLaunch(int, policy::LaunchIndex index) const override {
    return "kernel " + std::to_string(index);
  }
  std::string KernelOf(uint64_t tag) const override { return tag == 7 ? gemm : ""; }
  void AskForIteration(int) const override { ++asked_iteration; }
  std::shared_ptr<const Predictor::Followed> LastIteration(int) const override { return last_iteration; }

  std::map<int, DeviceSample> looks;
  std::vector<allocator::LargeBlock> largest;
  std::vector<io::DirectoryStats> directories;
  std::vector<ReportedPause> pauses;
  std::shared_ptr<const Predictor::Followed> last_iteration;
  std::string gemm = "gemm";
  int64_t look_nanos = 0;  // what a look takes
  mutable int looked = 0;
  mutable int asked_largest = 0;
  mutable int asked_iteration = 0;

 private:
  FakeClock* const clock_;
};

// Two launches, of gemm and of one whose name is asked for elsewhere.
Predictor::Followed TwoLaunches() {
  Predictor::Followed followed;
  followed.launches.Restart(40);
  followed.launches.AddLaunch(7, std::vector<policy::TraceBlock>{1});
  followed.launches.AddLaunch(8, std::vector<policy::TraceBlock>{1, 2});
  const policy::BlockSizes sizes = {{1, 2 << 20}, {2, 4 << 20}};
  followed.recorded = policy::MakeRecordedWorkload(followed.launches, 40, 2, sizes, nullptr, nullptr);
  return followed;
}

class RunReportTest : public ReportFileTest {
 protected:
  RunReportTest() {
    source_.looks[0] = {};
    facts_.pid = 42;
    facts_.directories = {"/nvme0"};
    source_.directories.resize(1);
    metrics_.devices.resize(1);
  }
  // Time 0 is so many seconds ago.
  RunReport Report(double ago = 0) {
    facts_.origin_nanos = clock_.nanos - static_cast<int64_t>(ago * 1e9);
    return RunReport(path(), facts_, advice_, &source_, &clock_);
  }
  std::string path() const { return folder_ + "/run.json"; }
  json Written(const std::string& path) const { return json::parse(Text(path)); }
  static uint64_t Sum(const json& column) {
    uint64_t sum = 0;
    for (const json& value : column) sum += value.get<uint64_t>();
    return sum;
  }

  FakeClock clock_;
  FakeSource source_{&clock_};
  RunFacts facts_;
  AdviceFacts advice_;
  Metrics metrics_;
};

TEST_F(RunReportTest, MovesAndStallsOfTheDeviceComeIntoItsFile) {
  RunReport report = Report();
  allocator::MotionObserver* const motion = report.AddDevice({});
  motion->OnMove({MoveKind::kGpuToHost, BlockId(0, 5), 100, facts_.origin_nanos, facts_.origin_nanos + 1000});
  motion->OnStall({StallCause::kChunks, BlockId(0, 5), 7, facts_.origin_nanos, 2'000'000'000, 0});
  motion->OnStall({StallCause::kChunks, BlockId(0, 6), 8, facts_.origin_nanos, 1, 0});
  report.Write(metrics_, /*ended=*/false);
  json data = Written(path());
  EXPECT_EQ(data["job"]["ended"], false);
  EXPECT_EQ(data["moves"]["bytes"], json({100}));
  EXPECT_EQ(data["kernels"], json({"gemm"}));
  ASSERT_EQ(data["costliest_kernels"].size(), 1u) << "a kernel without a name is none";
  EXPECT_EQ(data["costliest_kernels"][0]["stalled_s"], 2);
  EXPECT_FALSE(data["costliest_kernels"][0].contains("seconds"));
  report.Write(metrics_, /*ended=*/true);
  EXPECT_EQ(Written(path())["job"]["ended"], true);
}

TEST_F(RunReportTest, KernelsThatReachHostMemoryAreNamed) {
  RunReport report = Report();
  allocator::MotionObserver* const motion = report.AddDevice({});
  report.Write(metrics_, /*ended=*/false);
  EXPECT_FALSE(Written(path()).contains("reaching_kernels"));
  motion->OnReach(7, 2 << 20);
  motion->OnReach(7, 6 << 20);
  motion->OnReach(8, 1);  // without a name
  report.Write(metrics_, /*ended=*/true);
  EXPECT_EQ(Written(path())["reaching_kernels"],
            json::parse(R"([{"kernel":"gemm","launches":2,"bytes":8388608,"most_bytes":6291456}])"));
  EXPECT_TRUE(Written(path())["costliest_kernels"].empty()) << "it waited for nothing";
}

TEST_F(RunReportTest, TransfersAreWhatTheCountersGrewBy) {
  RunReport report = Report();
  report.AddDevice({});
  allocator::ResidencyStats& now = source_.looks[0].stats;
  now.spilled_bytes = 1000;
  source_.directories[0].bytes_written = 600;
  report.Sample();
  now.spilled_bytes = 1500;
  now.fetched_bytes = 70;
  now.live_bytes = 9;
  metrics_.devices[0].stats = now;
  metrics_.seconds = 30;
  source_.directories[0].bytes_read = 4;
  source_.directories[0].file_bytes = 4096;
  report.Write(metrics_, true);
  const json data = Written(path());
  EXPECT_EQ(Sum(data["transfers"]["to_host_bytes"]), 1500u);
  EXPECT_EQ(Sum(data["transfers"]["to_gpu_bytes"]), 70u);
  EXPECT_EQ(Sum(data["transfers"]["disks"][0]["written_bytes"]), 600u);
  EXPECT_EQ(Sum(data["transfers"]["disks"][0]["read_bytes"]), 4u);
  EXPECT_EQ(data["capacity"]["disks"][0]["bytes"], 4096);
  EXPECT_EQ(data["memory"]["live_bytes"].back(), 9);
}

TEST_F(RunReportTest, FurtherDevicesHaveFilesOfTheirOwn) {
  RunReport report = Report();
  for (const int device : {2, 0}) {
    ReportedDevice facts;
    facts.device = device;
    report.AddDevice(facts);
  }
  metrics_.devices.resize(2);
  metrics_.devices[1].device = 2;
  report.Write(metrics_, true);
  EXPECT_EQ(Written(path())["job"]["device_index"], 2) << "the first that was used";
  EXPECT_EQ(Written(path() + ".gpu0")["job"]["device_index"], 0);
}

// Its residency could not be made, for example. It never comes into service.
TEST_F(RunReportTest, ADeviceThatFailsToStartDoesNotTakeTheFile) {
  RunReport report = Report();
  for (const int device : {0, 1, 2}) {
    ReportedDevice facts;
    facts.device = device;
    report.AddDevice(facts);
  }
  metrics_.devices[0].device = 2;
  report.Write(metrics_, false);
  EXPECT_EQ(Written(path())["job"]["device_index"], 2);
  metrics_.devices.resize(2);
  metrics_.devices[1].device = 1;
  report.Write(metrics_, true);
  EXPECT_EQ(Written(path())["job"]["device_index"], 2) << "a file keeps its device";
  EXPECT_EQ(Written(path() + ".gpu1")["job"]["device_index"], 1);
}

// However long a look takes: else the charts have a hole of minutes.
TEST_F(RunReportTest, LooksComeOnceASecondAtLeast) {
  RunReport report = Report();
  report.AddDevice({});
  source_.look_nanos = 1'000'000;
  report.Sample();
  const int64_t first = clock_.nanos - source_.look_nanos;
  clock_.nanos = first + 99 * source_.look_nanos;
  report.Sample();
  EXPECT_EQ(source_.looked, 1) << "no more than 1 % of the time";
  clock_.nanos = first + 100 * source_.look_nanos;
  report.Sample();
  EXPECT_EQ(source_.looked, 2);
  clock_.nanos += 1'000'000'000;
  source_.look_nanos = 500'000'000;
  report.Sample();
  EXPECT_EQ(source_.looked, 3);
  clock_.nanos += 500'000'000;  // a second after it began
  report.Sample();
  EXPECT_EQ(source_.looked, 4);
}

TEST_F(RunReportTest, TheAdviceOfTheMomentIsInTheFile) {
  advice_.least_recently_used = true;
  RunReport report = Report();
  report.AddDevice({});
  metrics_.seconds = 10;
  report.Write(metrics_, false);
  EXPECT_FALSE(Written(path()).contains("advice")) << "nothing was moved";
  allocator::ResidencyStats& stats = metrics_.devices[0].stats;
  stats.spilled_bytes = stats.fetched_bytes = 100;
  stats.lost_arrival_nanos = 5'000'000'000;
  report.Write(metrics_, true);
  EXPECT_EQ(Written(path())["advice"], AdviceLine(metrics_, advice_));
  EXPECT_THAT(AdviceLine(metrics_, advice_), ::testing::HasSubstr("SPILLWAY_POLICY=plan"));
}

// Templates have commas, which the iteration's file cannot have, and names of hundreds of bytes.
TEST_F(RunReportTest, AKernelIsOneRowWhateverItsName) {
  source_.gemm = "void gemm<" + std::string(300, 'x') + ", 4, 8>(Params)";
  RunReport report = Report();
  allocator::MotionObserver* const motion = report.AddDevice({});
  report.SetIterations({{0, TwoLaunches()}},
                       [this](uint64_t tag) { return tag == 7 ? source_.gemm : "gemm<4, 2>"; });
  motion->OnStall({StallCause::kArrival, BlockId(), 7, 0, 3'000'000'000, 0});
  report.Write(metrics_, true);
  const json kernels = Written(path())["costliest_kernels"];
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0]["stalled_s"], 3);
  EXPECT_EQ(kernels[0]["launches"], 1) << "the same kernel";
  EXPECT_EQ(kernels[0]["kernel"], ShortKernelName(source_.gemm));
  EXPECT_EQ(kernels[0]["kernel"], Written(path())["kernels"][0]);
  EXPECT_EQ(kernels[1]["kernel"], "gemm<4, 2>");
}

TEST_F(RunReportTest, ADeviceThatIsNotInServiceIsNotLookedAt) {
  RunReport report = Report();
  ReportedDevice facts;
  facts.device = 1;
  report.AddDevice(facts);
  report.Sample();
  metrics_.devices[0].device = 3;  // one that was never added
  report.Write(metrics_, true);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(RunReportTest, TheLargestBlocksAreThoseOfTheMostThatLived) {
  RunReport report = Report(5);
  allocator::MotionObserver* const motion = report.AddDevice({});
  source_.looks[0].stats.live_bytes = 100;
  source_.largest = {{64, true, 11, BlockId(0, 3)}, {32, false, std::nullopt, BlockId(0, 4)}};
  report.Sample();
  motion->OnMove({MoveKind::kGpuToHost, BlockId(0, 3), 64, 0, 0});
  source_.largest.clear();
  metrics_.seconds = 9;
  metrics_.devices[0].stats.live_bytes = 50;  // at the end nearly all are gone
  report.Write(metrics_, true);
  EXPECT_EQ(source_.asked_largest, 1);
  const json blocks = Written(path())["largest_blocks"];
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0]["block"], 3);
  EXPECT_EQ(blocks[0]["bytes"], 64);
  EXPECT_EQ(blocks[0]["moved_bytes"], 64);
  EXPECT_EQ(blocks[0]["last_kernel"], "kernel 11");
  EXPECT_FALSE(blocks[1].contains("last_kernel"));
}

TEST_F(RunReportTest, OfTheBlocksOfThePeakThoseThatMovedMostAreNamed) {
  RunReport report = Report(5);
  allocator::MotionObserver* const motion = report.AddDevice({});
  source_.looks[0].stats.live_bytes = 100;
  for (uint32_t i = 0; i < 30; ++i) source_.largest.push_back({100 - i, true, std::nullopt, BlockId(0, i)});
  report.Sample();
  motion->OnMove({MoveKind::kGpuToHost, BlockId(0, 29), 71, 0, 0});
  motion->OnMove({MoveKind::kGpuToHost, BlockId(0, 25), 75, 0, 0});
  report.Write(metrics_, true);
  const json blocks = Written(path())["largest_blocks"];
  ASSERT_EQ(blocks.size(), 20u);
  EXPECT_EQ(blocks[0]["block"], 25);
  EXPECT_EQ(blocks[1]["block"], 29);
  EXPECT_EQ(blocks[2]["block"], 0) << "nothing else moved: the largest";
}

TEST_F(RunReportTest, TheIterationIsThereBeforeTheEnd) {
  RunReport report = Report(3);
  report.AddDevice({});
  report.Sample();
  EXPECT_EQ(source_.asked_iteration, 1);
  metrics_.seconds = 9;
  report.Write(metrics_, /*ended=*/false);
  EXPECT_EQ(source_.asked_iteration, 2) << "nothing is known yet";
  EXPECT_FALSE(Written(path()).contains("iteration"));
  source_.last_iteration = std::make_shared<Predictor::Followed>(TwoLaunches());
  metrics_.seconds = 20;
  report.Write(metrics_, false);
  EXPECT_EQ(source_.asked_iteration, 3);
  EXPECT_TRUE(Written(path()).contains("iteration"));
  EXPECT_EQ(Written(path())["costliest_kernels"][0]["kernel"], "gemm");
  metrics_.seconds = 39;
  report.Write(metrics_, false);
  EXPECT_EQ(source_.asked_iteration, 3) << "again when the run is twice as old";
  metrics_.seconds = 41;
  report.Write(metrics_, false);
  EXPECT_EQ(source_.asked_iteration, 4);
}

TEST_F(RunReportTest, WhatIsKnownOfTheIterationAtTheEnd) {
  RunReport report = Report();
  allocator::MotionObserver* const motion = report.AddDevice({});
  report.MarkIteration();
  report.MarkIteration();
  const Predictor::Followed followed = TwoLaunches();
  report.SetIterations({{0, followed}, {1, std::nullopt}, {2, followed}},
                       [](uint64_t tag) { return tag == 7 ? "gemm" : "add"; });
  motion->OnStall({StallCause::kArrival, BlockId(), 7, 0, 3'000'000'000, 0});
  report.Write(metrics_, true);
  const json data = Written(path());
  EXPECT_EQ(data["iterations"]["kind"], json({0}));
  EXPECT_NEAR(data["active"]["share"].get<double>(), (2.0 / 6 + 1) / 2, 1e-9);
  EXPECT_FALSE(data["iteration"].get<std::string>().empty());
  EXPECT_FALSE(data.contains("phases")) << "the iteration's beginning was not marked";
  ASSERT_EQ(data["costliest_kernels"].size(), 2u);
  EXPECT_EQ(data["costliest_kernels"][0]["kernel"], "gemm") << "the stall costs more";
  EXPECT_EQ(data["costliest_kernels"][0]["launches"], 1);
  EXPECT_EQ(data["costliest_kernels"][1]["kernel"], "add");
}

}  // namespace
}  // namespace spillway::integration
