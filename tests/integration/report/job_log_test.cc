#include "integration/report/job_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sizes.h"

namespace spillway::integration {
namespace {

using os::LogLevel;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobLog::Line Info(const std::string& text) { return {LogLevel::kInfo, text}; }
JobLog::Line Debug(const std::string& text) { return {LogLevel::kDebug, text}; }

class JobLogTest : public ::testing::Test {
 protected:
  JobLogTest() {
    metrics_.devices.emplace_back();
    device().device = 0;
    device().stats.budget_in_force_bytes = 2 * kGiB;
    log_.Update(metrics_);
  }
  DeviceMetrics& device() { return metrics_.devices.front(); }
  // After another second.
  std::vector<JobLog::Line> Update() {
    metrics_.seconds += 1;
    return log_.Update(metrics_);
  }

  Metrics metrics_;
  JobLog log_;
};

TEST_F(JobLogTest, NothingIsReportedWhereNothingHappens) {
  EXPECT_THAT(Update(), IsEmpty());
  device().stats.launches += 100;
  EXPECT_THAT(Update(), IsEmpty());
}

TEST_F(JobLogTest, TheFirstBytesOfEachTierAndWhatMoves) {
  device().stats.spilled_bytes = device().stats.host_spilled_bytes = 3 * kMiB;
  EXPECT_THAT(
      Update(),
      ElementsAre(Info("GPU 0: the first blocks are in host memory"),
                  Debug("GPU 0: in 1.0 s 3.00 MiB left (0 B for the disk) and 0 B came back (0 B from "
                        "it); 0 blocks on demand, 0 ahead of need")));
  device().stats.spilled_bytes += 2 * kMiB;
  device().stats.disk_spilled_bytes = 2 * kMiB;
  device().stats.fetched_bytes = kMiB;
  device().stats.faults = 4;
  device().stats.prefetches = 5;
  EXPECT_THAT(
      Update(),
      ElementsAre(Info("GPU 0: the first blocks are on disk"),
                  Debug("GPU 0: in 1.0 s 2.00 MiB left (2.00 MiB for the disk) and 1.00 MiB came back "
                        "(0 B from it); 4 blocks on demand, 5 ahead of need")));
  EXPECT_THAT(Update(), IsEmpty());
}

TEST_F(JobLogTest, PlansComeGetBetterAreDroppedAndComeBack) {
  device().plans = 1;
  device().plan_iteration_launches = 186;
  EXPECT_THAT(Update(), ElementsAre(Info("GPU 0: a plan is in force for iterations of 186 launches")));
  device().plans = 2;
  device().plan_improvements = 1;
  EXPECT_THAT(Update(), ElementsAre(Debug("GPU 0: a better plan is in force")));
  device().plan_departures = 1;
  device().plan_iteration_launches = 0;
  EXPECT_THAT(Update(), ElementsAre(Info("GPU 0: a launch departs from the repeating iteration: its plan is "
                                         "dropped")));
  device().plan_departures = 3;
  device().plans = 4;
  device().plan_readoptions = 1;
  device().plan_iteration_launches = 186;
  EXPECT_THAT(Update(),
              ElementsAre(Info("GPU 0: a launch departs from the repeating iteration: its plan is "
                               "dropped, 2 times"),
                          Info("GPU 0: the job has come back to iterations of 186 launches, whose plan is in "
                               "force again")));
}

TEST_F(JobLogTest, ABudgetThatChanges) {
  device().stats.budget_in_force_bytes = 2 * kGiB - kMiB;
  EXPECT_THAT(Update(), IsEmpty()) << "by less than 2 %";
  device().stats.budget_in_force_bytes = kGiB;
  EXPECT_THAT(Update(), ElementsAre(Info("GPU 0: the budget in force is 1.00 GiB; it was 2.00 GiB")));
}

TEST_F(JobLogTest, ATierThatIsFullUntilItHasSpace) {
  metrics_.host_capacity_bytes = kGiB;
  device().stats.host_tier_bytes = kGiB - kMiB;
  EXPECT_THAT(Update(), IsEmpty()) << "it may be growing";
  metrics_.host_capacity_bytes = 2 * kGiB;
  device().stats.host_tier_bytes = 2 * kGiB;
  EXPECT_THAT(Update(), IsEmpty()) << "it has grown";
  EXPECT_THAT(Update(), ElementsAre(Info("host memory is full: 2.00 GiB of 2.00 GiB hold spilled bytes")));
  EXPECT_THAT(Update(), IsEmpty()) << "once";
  device().stats.host_tier_bytes = 2 * kGiB - 128 * kMiB;
  EXPECT_THAT(Update(), IsEmpty()) << "only a little is free";
  device().stats.host_tier_bytes = kGiB;
  EXPECT_THAT(Update(),
              ElementsAre(Info("host memory has space again: 1.00 GiB of 2.00 GiB hold spilled bytes")));
  EXPECT_THAT(Update(), IsEmpty());
}

TEST_F(JobLogTest, TiersAreThoseOfAllDevices) {
  metrics_.devices.push_back(device());
  metrics_.devices.back().device = 1;
  metrics_.disk.capacity_bytes = 2 * kGiB;
  for (DeviceMetrics& one : metrics_.devices) one.stats.disk_tier_bytes = kGiB;
  Update();
  EXPECT_THAT(Update(), ElementsAre(Info("the disk tier is full: 2.00 GiB of 2.00 GiB hold spilled bytes")));
}

}  // namespace
}  // namespace spillway::integration
