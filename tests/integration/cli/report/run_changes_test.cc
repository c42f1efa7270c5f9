#include "integration/cli/report/run_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "integration/cli/report/change_causes.h"
#include "integration/cli/report/changes_page.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr double kGiB = 1 << 30;

// A run with its facts: 100 s of iterations of 2 s.
struct SyntheticRun {
  ReportData data;
  ReportFacts facts;

  SyntheticRun() {
    data.job.command = {"python", "train.py"};
    data.job.seconds = 100;
    data.capacity.gpu_bytes = 20 * kGiB;
    data.capacity.host_bytes = 30 * kGiB;
    data.metrics.peak_live_bytes = 40 * kGiB;
    data.metrics.iteration_s = 2;
    data.metrics.ideal_s = 1;
    data.metrics.lost_seconds = {{"chunks", 10}, {"arrival", 20}};
    data.metrics.host_spilled_bytes = data.metrics.host_fetched_bytes = 500 * kGiB;
    data.metrics.disk_spilled_bytes = data.metrics.disk_fetched_bytes = 100 * kGiB;
  }
  void Iterate(Column seconds) { data.iterations = ReportIterations{Column(seconds.size(), 0), seconds}; }
};

RunChanges Compare(SyntheticRun& before, SyntheticRun& after) {
  WhatIf none;
  none.missing = "no trace";
  before.facts = FactsOf(before.data, none, {});
  after.facts = FactsOf(after.data, none, {});
  RunChanges changes = ChangesOf({&before.data, &before.facts}, {&after.data, &after.facts});
  FindCauses(&changes);
  return changes;
}

TEST(RunChangesTest, EqualRunsHaveNoNotableChange) {
  SyntheticRun before, after;
  const RunChanges changes = Compare(before, after);
  for (const ChangeGroup& group : changes.groups) {
    for (const Change& change : group.changes) {
      EXPECT_FALSE(change.IsNotable()) << change.key;
      EXPECT_THAT(change.cause, IsEmpty()) << change.key;
    }
  }
  EXPECT_THAT(changes.settings, IsEmpty());
  EXPECT_THAT(changes.machine, IsEmpty());
}

TEST(RunChangesTest, ChangesAreAbsoluteAndRelative) {
  Change change{"x", "x", Unit::kSeconds, 2, 3, ""};
  EXPECT_EQ(change.Absolute(), 1);
  EXPECT_EQ(change.Percent(), 50);
  change.before = 0;
  EXPECT_FALSE(change.Percent());
  EXPECT_TRUE(change.IsNotable()) << "from nothing to something";
  change = {"x", "x", Unit::kSeconds, 2, 2.03, ""};
  EXPECT_FALSE(change.IsNotable());
  change = {"x", "x", Unit::kPercent, 1, 2.5, ""};
  EXPECT_FALSE(change.IsNotable()) << "a point and a half";
  change.after.reset();
  EXPECT_FALSE(change.Absolute() || change.Percent() || change.IsNotable());
}

TEST(RunChangesTest, BytesAreOfAnIterationSoThatRunsNeedNotBeEquallyLong) {
  SyntheticRun before, after;
  after.data.job.seconds = 200;
  after.data.metrics.lost_seconds = {{"chunks", 20}, {"arrival", 40}};
  after.data.metrics.host_spilled_bytes = 1000 * kGiB;
  const RunChanges changes = Compare(before, after);
  EXPECT_DOUBLE_EQ(*changes.Find("gpu_to_host_bytes")->before, 10 * kGiB);
  EXPECT_DOUBLE_EQ(*changes.Find("gpu_to_host_bytes")->after, 10 * kGiB);
  EXPECT_FALSE(changes.Find("lost for bytes to come back")->IsNotable());
  after.data.metrics.per_iteration.host_spilled_bytes = 12 * kGiB;  // the process's own count
  EXPECT_DOUBLE_EQ(*Compare(before, after).Find("gpu_to_host_bytes")->after, 12 * kGiB);
}

TEST(RunChangesTest, WithoutIterationsTheyAreOfTheWholeRun) {
  SyntheticRun before, after;
  after.data.metrics.iteration_s.reset();
  const RunChanges changes = Compare(before, after);
  EXPECT_FALSE(changes.per_iteration);
  EXPECT_EQ(changes.Find("gpu_to_host_bytes")->before, 500 * kGiB);
}

TEST(RunChangesTest, TheCauseGoesBackToTheSetting) {
  SyntheticRun before, after;
  before.data.settings = {{"host_memory", "30GiB", "SPILLWAY_HOST_MEMORY"}};
  after.data.settings = {{"host_memory", "10GiB", "SPILLWAY_HOST_MEMORY"}};
  after.data.capacity.host_bytes = 10 * kGiB;
  after.data.metrics.disk_spilled_bytes = after.data.metrics.disk_fetched_bytes = 300 * kGiB;
  after.data.metrics.iteration_s = 2.5;
  after.data.metrics.lost_seconds = {{"chunks", 8}, {"arrival", 38}};
  const RunChanges changes = Compare(before, after);
  const std::string& cause = changes.Find("iteration_seconds")->cause;
  EXPECT_THAT(cause,
              HasSubstr("the GPU waited for bytes to come back, since disk → GPU was 7.50 GiB instead of "
                        "2.00 GiB, since host memory it may use was 10.0 GiB instead of 30.0 GiB, since "
                        "SPILLWAY_HOST_MEMORY was 10GiB instead of 30GiB"));
}

TEST(RunChangesTest, ASmallerBudgetMovesMore) {
  SyntheticRun before, after;
  after.data.settings = {{"gpu_memory", "15GiB", "SPILLWAY_GPU_MEMORY"}};
  after.data.capacity.gpu_bytes = 15 * kGiB;
  after.data.metrics.host_spilled_bytes = after.data.metrics.host_fetched_bytes = 800 * kGiB;
  const RunChanges changes = Compare(before, after);
  EXPECT_EQ(changes.Find("gpu_to_host_bytes")->cause,
            "GPU budget was 15.0 GiB instead of 20.0 GiB, since SPILLWAY_GPU_MEMORY was 15GiB instead of not "
            "given");
  EXPECT_EQ(changes.Find("budget_bytes")->cause, "SPILLWAY_GPU_MEMORY was 15GiB instead of not given");
}

TEST(RunChangesTest, SlowerDrivesAreNamedWithTheirOwnCause) {
  SyntheticRun before, after;
  before.data.metrics.disk_in = 5e9;
  after.data.metrics.disk_in = 2e9;
  ReportDirectory directory;
  directory.path = "/nvme";
  directory.engine = "io_uring";
  directory.direct = true;
  before.data.metrics.directories = {directory};
  directory.direct = false;
  after.data.metrics.directories = {directory};
  after.data.metrics.iteration_s = 2.5;
  after.data.job.seconds = 125;  // as many iterations
  after.data.metrics.lost_seconds = {{"chunks", 10}, {"arrival", 45}};
  const RunChanges changes = Compare(before, after);
  EXPECT_THAT(changes.Find("lost for bytes to come back")->cause,
              HasSubstr("disk → GPU, of the job was 2.00 GB/s instead of 5.00 GB/s, since spill directories: "
                        "/nvme (io_uring, buffered) instead of /nvme (io_uring, direct)"));
}

TEST(RunChangesTest, LongerKernelsAreTheDevicesOrTheCommands) {
  SyntheticRun before, after;
  after.data.metrics.ideal_s = 1.5;
  after.data.metrics.iteration_s = 2.5;
  after.data.metrics.lost_seconds = {{"chunks", 8}, {"arrival", 16}};
  EXPECT_THAT(Compare(before, after).Find("iteration_seconds")->cause, HasSubstr("clocks, or other work"));
  after.data.job.device = "A100";
  before.data.job.device = "H100";
  EXPECT_THAT(Compare(before, after).Find("iteration_seconds")->cause,
              HasSubstr("500 ms of it: kernels alone, since device: A100 instead of H100"));
}

TEST(RunChangesTest, IterationsThatOverlapAreNotExplained) {
  SyntheticRun before, after;
  after.data.metrics.iteration_s = 2.1;
  before.Iterate({5, 1.6, 1.9, 2.0, 2.2, 2.4});
  after.Iterate({5, 1.7, 1.9, 2.1, 2.2, 2.5});
  RunChanges changes = Compare(before, after);
  EXPECT_TRUE(changes.within_spread);
  EXPECT_THAT(changes.Find("iteration_seconds")->cause, HasSubstr("within the variation"));
  after.Iterate({5, 2.5, 2.6, 2.7, 2.8, 2.9});
  EXPECT_FALSE(Compare(before, after).within_spread);
}

TEST(RunChangesTest, NamesAreAsShortAsTellsThemApart) {
  EXPECT_THAT(ShortNames("x/a.json", "y/b.json"), Pair("a", "b"));
  EXPECT_THAT(ShortNames("x/run.json", "y/run.json"), Pair("x/run", "y/run"));
  EXPECT_THAT(ShortNames("x/", "y/"), Pair("x", "y"));
}

}  // namespace
}  // namespace spillway::integration
