#include "integration/cli/report/report_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "integration/cli/report/report_verdict.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kGB = 1e9;

// 100 s with a budget of 20 GB and 30 GB at the peak; 10 s of them lost.
ReportData LossyRun() {
  ReportData data;
  data.job.seconds = 100;
  data.capacity.gpu_bytes = 20 * kGB;
  data.metrics.peak_live_bytes = 30 * kGB;
  data.metrics.lost_seconds = {{"chunks", 2}, {"arrival", 8}};
  return data;
}

WhatIf NotSimulated() {
  WhatIf what_if;
  what_if.missing = "no trace";
  return what_if;
}

WhatIf Simulated(double bound_s) {
  WhatIf what_if;
  what_if.ideal_s = 1;
  what_if.bound_s = bound_s;
  what_if.iteration_s = 2;
  return what_if;
}

TEST(ReportFactsTest, NothingIsKnownOfAnEmptyFile) {
  const ReportFacts facts = FactsOf(ReportData(), NotSimulated(), {});
  EXPECT_FALSE(facts.seconds || facts.lost_percent || facts.saved_bytes || facts.percent_of_bound);
  EXPECT_FALSE(facts.joules || facts.ssd_days || facts.written_per_day || facts.iteration_s);
  EXPECT_THAT(facts.help, IsEmpty());
  EXPECT_THAT(facts.bound_missing, HasSubstr("no iteration"));
}

TEST(ReportFactsTest, LostTimeIsAPartOfTheRunTheGreatestCauseFirst) {
  const ReportFacts facts = FactsOf(LossyRun(), NotSimulated(), {});
  EXPECT_EQ(facts.lost_percent, 10);
  EXPECT_EQ(facts.saved_bytes, 10 * kGB);
  EXPECT_EQ(facts.lost_by_cause.front(), std::make_pair(std::string("for bytes to come back"), 8.0));
}

TEST(ReportFactsTest, TheIterationIsTheMedianWithoutTheFirst) {
  ReportData data = LossyRun();
  data.iterations = ReportIterations{{0, 9, 11, 13}, {9, 2, 2.5, 3}};
  EXPECT_EQ(FactsOf(data, Simulated(1.25), {}).iteration_s, 2.5);
  EXPECT_EQ(FactsOf(data, Simulated(1.25), {}).percent_of_bound, 50);
  EXPECT_EQ(FactsOf(data, Simulated(1.25), {}).percent_with_pauses, 90) << "a tenth was lost";
  EXPECT_EQ(FactsOf(data, Simulated(1.25), {}).percent_of_ideal, 40);
  EXPECT_EQ(FactsOf(data, Simulated(1.25), {}).iteration_how, "median without the first");
  data.metrics.iteration_s = 2;  // of the stretch that was looked at
  EXPECT_EQ(FactsOf(data, Simulated(1.25), {}).iteration_s, 2);
  EXPECT_EQ(FactsOf(data, Simulated(1.25), {}).iteration_how, "mean while the job only repeated it");
}

// A job that sleeps or waits for data is not slow for want of a plan.
TEST(ReportFactsTest, TheJobsOwnPausesBelongToTheBound) {
  ReportData data;
  data.job.seconds = 100;
  data.metrics.iteration_s = 4;
  EXPECT_FALSE(FactsOf(data, Simulated(1.25), {}).own_pauses_s) << "the time lost is not known";
  EXPECT_NEAR(*FactsOf(data, Simulated(1.25), {}).percent_with_pauses, 31.25, 0.01);
  data.metrics.lost_seconds = {{"arrival", 0.0}};
  ReportFacts facts = FactsOf(data, Simulated(1.25), {});
  EXPECT_EQ(facts.own_pauses_s, 3);
  EXPECT_EQ(facts.percent_with_pauses, 100) << "1 s of kernels, 3 s of pauses, nothing lost";
  data.metrics.lost_seconds = {{"arrival", 50.0}};  // 2 s of each iteration
  facts = FactsOf(data, Simulated(1.25), {});
  EXPECT_EQ(facts.own_pauses_s, 1);
  EXPECT_EQ(facts.percent_with_pauses, 50);
  data.metrics.lost_seconds = {{"arrival", 90.0}};
  EXPECT_EQ(FactsOf(data, Simulated(1.25), {}).own_pauses_s, 0) << "what was lost is not lost in proportion";
}

TEST(ReportFactsTest, AShareOfABoundThatIsNotNearIsAtLeastThat) {
  ReportData data = LossyRun();
  data.metrics.iteration_s = 2.5;
  WhatIf what_if = Simulated(1.25);
  EXPECT_EQ(FactsOf(data, what_if, {}).AtLeast(50), "at least ");
  EXPECT_EQ(FactsOf(data, what_if, {}).AtLeast(98.5), "") << "no more than two points can be missing";
  what_if.bound_is_near = true;
  EXPECT_EQ(FactsOf(data, what_if, {}).AtLeast(50), "");
  data.metrics.bound_s = 1.25;
  what_if.missing = "it was switched off";
  EXPECT_EQ(FactsOf(data, what_if, {}).AtLeast(50), "at least ") << "the run's own bound is a quick one";
}

TEST(ReportFactsTest, AnIterationFasterThanItsBoundHasNoShareOfIt) {
  ReportData data = LossyRun();
  data.metrics.iteration_s = 1;
  EXPECT_EQ(FactsOf(data, Simulated(1.04), {}).percent_of_bound, 100);  // within the error of the times
  const ReportFacts facts = FactsOf(data, Simulated(1.2), {});
  EXPECT_FALSE(facts.percent_of_bound);
  EXPECT_THAT(facts.bound_missing, HasSubstr("less than its bound of 1.20 s"));
}

// 100 GB in 100 s, which is 86.4 TB a day, in these parts.
ReportData WritingRun(const std::vector<ReportDisk>& disks) {
  ReportData data = LossyRun();
  data.metrics.disk_written_bytes = 100 * kGB;
  data.capacity.disks = disks;
  data.transfers.emplace();
  data.transfers->disks = disks;
  return data;
}

ReportDisk DiskOf(const std::string& directory, const std::string& drive, double written_gb,
                  Known ranks = {}) {
  return {directory, {}, {written_gb / 4 * kGB, written_gb * 3 / 4 * kGB}, {}, drive, ranks};
}

TEST(ReportFactsTest, TheDriveThatIsWrittenMostIsSpentFirst) {
  ReportAssumptions assumptions;
  assumptions.ssd_tbw = 864;
  ReportData data = WritingRun({DiskOf("/a", "nvme0n1", 75), DiskOf("/b", "nvme1n1", 25)});
  const ReportFacts facts = FactsOf(data, NotSimulated(), assumptions);
  EXPECT_EQ(facts.drives, 2);
  EXPECT_DOUBLE_EQ(*facts.written_per_day, 86.4e12);
  EXPECT_DOUBLE_EQ(*facts.ssd_days, 10 / 0.75);
  data.transfers.reset();  // equal parts, where nothing says more
  EXPECT_DOUBLE_EQ(*FactsOf(data, NotSimulated(), assumptions).ssd_days, 20);
  data.metrics.disk_written_bytes = 0;
  EXPECT_FALSE(FactsOf(data, NotSimulated(), assumptions).ssd_days);
  data.capacity.disks->clear();
  EXPECT_FALSE(FactsOf(data, NotSimulated(), assumptions).written_per_day);
  EXPECT_EQ(FactsOf(data, NotSimulated(), assumptions).drives, 0);
}

TEST(ReportFactsTest, DirectoriesOfOneDriveShareItsLife) {
  ReportAssumptions assumptions;
  assumptions.ssd_tbw = 864;
  const ReportData same = WritingRun({DiskOf("/a", "nvme0n1", 50), DiskOf("/b", "nvme0n1", 50)});
  EXPECT_EQ(FactsOf(same, NotSimulated(), assumptions).drives, 1);
  EXPECT_DOUBLE_EQ(*FactsOf(same, NotSimulated(), assumptions).ssd_days, 10);
  const ReportData unknown = WritingRun({DiskOf("/a", "", 50), DiskOf("/b", "", 50)});
  EXPECT_EQ(FactsOf(unknown, NotSimulated(), assumptions).drives, 2);
  EXPECT_DOUBLE_EQ(*FactsOf(unknown, NotSimulated(), assumptions).ssd_days, 20);
}

// The file is one process's; the others of the job wear the same drive.
TEST(ReportFactsTest, EachRankWearsTheDriveThatItSharesWithOthers) {
  ReportAssumptions assumptions;
  assumptions.ssd_tbw = 864;
  const ReportData data = WritingRun({DiskOf("/a", "nvme0n1", 50, 8), DiskOf("/b", "nvme1n1", 50, 2)});
  const ReportFacts facts = FactsOf(data, NotSimulated(), assumptions);
  EXPECT_EQ(facts.wear_ranks, 8);
  EXPECT_DOUBLE_EQ(*facts.written_per_day, 86.4e12 * (8 + 2) / 2);
  EXPECT_DOUBLE_EQ(*facts.ssd_days, 10.0 / 8 * 2);
}

TEST(ReportFactsTest, EnergyIsReadOrGivenAndLostInProportion) {
  ReportData data = LossyRun();
  EXPECT_FALSE(FactsOf(data, NotSimulated(), {}).joules);
  data.power = ReportPower{7200, std::nullopt, "nvml"};
  ReportAssumptions assumptions;
  EXPECT_EQ(FactsOf(data, NotSimulated(), assumptions).joules, 7200);
  EXPECT_FALSE(FactsOf(data, NotSimulated(), assumptions).money);
  assumptions.watts = 360;
  assumptions.price_per_kwh = 0.5;
  const ReportFacts facts = FactsOf(data, NotSimulated(), assumptions);
  EXPECT_DOUBLE_EQ(*facts.joules, 36000);  // what is given wins
  EXPECT_DOUBLE_EQ(*facts.lost_joules, 3600);
  EXPECT_DOUBLE_EQ(*facts.lost_joules_per_gb, 360);
  EXPECT_DOUBLE_EQ(*facts.money, 0.005);
  EXPECT_DOUBLE_EQ(*facts.lost_money_per_gb, 0.00005);
}

TEST(ReportFactsTest, HelpIsWhatTheJobsLastLineNamesWithWhatTheSimulatorSays) {
  ReportData data = LossyRun();
  data.advice = "lost time: ...; what would help most: a larger SPILLWAY_HOST_MEMORY (now 1.00 GiB)";
  WhatIf what_if = Simulated(1.5);
  what_if.sweeps = {
      {WhatIfAxis::kHostMemory, {{1e9, 1, true, "", 2, 75, 0}, {0x1p31, 2, true, "", 1.5, 100, 0}}, ""}};
  const ReportFacts facts = FactsOf(data, what_if, {});
  EXPECT_EQ(facts.help, "a larger SPILLWAY_HOST_MEMORY (now 1.00 GiB)");
  EXPECT_EQ(facts.help_simulated, "2.00 GiB would make an iteration 25 % shorter (simulated)");
  data.advice = "";
  EXPECT_EQ(FactsOf(data, what_if, {}).help, "a larger SPILLWAY_HOST_MEMORY");
  data.advice = "lost time: ...; no setting would help: nothing left the GPU after a call";
  EXPECT_THAT(FactsOf(data, what_if, {}).help, IsEmpty()) << "the job knows better than the simulator";
  data.advice = "";
  data.metrics.lost_seconds = {{"chunks", 1}};
  EXPECT_THAT(FactsOf(data, what_if, {}).help, IsEmpty());  // a hundredth of the time: not worth a change
}

TEST(ReportFactsTest, MostIsMoreThanHalf) {
  ReportData data = LossyRun();
  data.metrics.spilled_bytes = 1;
  const auto verdict = [&data] {
    std::string text;
    for (const std::string& sentence : VerdictOf(data, FactsOf(data, NotSimulated(), {}))) text += sentence;
    return text;
  };
  EXPECT_THAT(verdict(), HasSubstr(", most of it for bytes to come back (8.00 s)"));
  data.metrics.lost_seconds = {{"chunks", 3}, {"arrival", 4}, {"run_ahead", 3}};
  EXPECT_THAT(verdict(), HasSubstr(", the largest part of it for bytes to come back (4.00 s)"));
}

}  // namespace
}  // namespace spillway::integration
