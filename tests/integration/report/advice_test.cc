#include "integration/report/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sizes.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSecond = 1'000'000'000;

// A job of 100 s that has moved bytes; each row says where its time went.
struct Row {
  const char* name;
  uint64_t chunks, read, run_ahead;  // seconds
  uint64_t disk_percent;             // of the traffic
  AdviceFacts facts;
  const char* cause;
  const char* setting;
};

const Row kRows[] = {
    {"disk reads",
     5,
     20,
     1,
     80,
     {},
     "most of it for bytes to come back from the disk (20.0 s)",
     "a larger SPILLWAY_HOST_MEMORY (now 0 B)"},
    {"no cause is half of it",
     4,
     5,
     3,
     10,
     {},
     "the largest part of it for bytes to come back from host memory (5.0 s)",
     "a larger SPILLWAY_GPU_MEMORY (now 8.00 GiB)"},
    {"host reads",
     5,
     20,
     1,
     10,
     {},
     "for bytes to come back from host memory (20.0 s)",
     "a larger SPILLWAY_GPU_MEMORY (now 8.00 GiB)"},
    {"chunks, disk",
     20,
     5,
     1,
     80,
     {},
     "for GPU memory that was still on its way to the disk (20.0 s)",
     "a larger SPILLWAY_HOST_MEMORY"},
    {"chunks, host",
     20,
     5,
     1,
     0,
     {},
     "for GPU memory that was still on its way to host memory (20.0 s)",
     "a larger SPILLWAY_GPU_MEMORY"},
    {"run-ahead",
     1,
     2,
     9,
     80,
     {},
     "for the bound on launches under way (9.0 s)",
     "a larger SPILLWAY_GPU_MEMORY"},
    {"lru", 5, 20, 1, 80, {.least_recently_used = true}, "from the disk", "most: SPILLWAY_POLICY=plan"},
    {"audit", 5, 20, 1, 80, {.least_recently_used = true, .audit = true}, "", "most: SPILLWAY_AUDIT=off"},
    {"model", 5, 20, 1, 80, {.modeled_disk = true}, "", "most: SPILLWAY_IO_MODEL=none"},
    {"strict", 5, 20, 1, 80, {.strict = true}, "", "most: SPILLWAY_TRUST=normal"},
    {"little", 0, 1, 0, 80, {}, "the GPU had to wait 1.0 s of 100.0 s (1.0 %)", "no setting would help much"},
};

Metrics MetricsOf(const Row& row) {
  Metrics metrics;
  metrics.seconds = 100;
  DeviceMetrics device;
  device.stats.budget_bytes = device.stats.budget_in_force_bytes = 8 * kGiB;
  device.stats.pinned_bytes = 3 * kGiB;
  device.stats.spilled_bytes = device.stats.fetched_bytes = 100 * kGiB;
  device.stats.disk_spilled_bytes = device.stats.disk_fetched_bytes = row.disk_percent * kGiB;
  device.stats.lost_chunks_nanos = row.chunks * kSecond;
  device.stats.lost_arrival_nanos = row.read * kSecond;
  device.stats.lost_run_ahead_nanos = row.run_ahead * kSecond;
  metrics.devices.push_back(device);
  return metrics;
}

TEST(AdviceLineTest, OffersNoLargerBudgetThanTheGpuHas) {
  Row row = kRows[0];
  row.disk_percent = 0;
  row.facts = {};
  Metrics metrics = MetricsOf(row);
  EXPECT_THAT(AdviceLine(metrics, {}), HasSubstr("a larger SPILLWAY_GPU_MEMORY (now 8.00 GiB)"));
  metrics.devices.front().stats.budget_bytes = 9 * kGiB;
  metrics.devices.front().stats.driver_lacks_bytes = kGiB;
  EXPECT_THAT(AdviceLine(metrics, {}),
              HasSubstr("no setting would help: the GPU has no more than 8.00 GiB for a budget of 9.00 GiB"));
}

TEST(AdviceLineTest, NamesNoBudgetWhereItIsAllThatTheGpuHas) {
  Row row = kRows[0];
  row.disk_percent = 0;
  const char* const all = "no setting would help: the budget of 8.00 GiB is all that the GPU has for it";
  EXPECT_THAT(AdviceLine(MetricsOf(row), {.largest_budget_bytes = 0}), HasSubstr(all)) << "it was not set";
  EXPECT_THAT(AdviceLine(MetricsOf(row), {.largest_budget_bytes = 8 * kGiB}), HasSubstr(all));
  EXPECT_THAT(AdviceLine(MetricsOf(row), {.largest_budget_bytes = 9 * kGiB}),
              HasSubstr("a larger SPILLWAY_GPU_MEMORY"));
  EXPECT_THAT(AdviceLine(MetricsOf(kRows[0]), {.largest_budget_bytes = 0}),
              HasSubstr("SPILLWAY_HOST_MEMORY"));
}

TEST(AdviceLineTest, NamesTheJobsOwnLimitWhereThatIsWhatCounts) {
  Row row = kRows[0];
  row.disk_percent = 0;
  Metrics metrics = MetricsOf(row);
  metrics.devices.front().stats.own_limit_bytes = 6 * kGiB;
  EXPECT_THAT(AdviceLine(metrics, {.largest_budget_bytes = 0}),
              HasSubstr("what would help most: more by set_per_process_memory_fraction (now 6.00 GiB)"));
}

TEST(AdviceLineTest, NamesOtherJobsWhereTheyHaveTheRest) {
  Row row = kRows[0];
  row.disk_percent = 0;
  Metrics metrics = MetricsOf(row);
  allocator::ResidencyStats& stats = metrics.devices.front().stats;
  stats.share_bytes = stats.budget_bytes / 2;
  const char* const others = "no setting would help: other jobs have the rest of the GPU";
  EXPECT_THAT(AdviceLine(metrics, {.largest_budget_bytes = 0}), HasSubstr(others));
  stats.share_bytes = stats.budget_bytes;
  EXPECT_THAT(AdviceLine(metrics, {.largest_budget_bytes = 0}), ::testing::Not(HasSubstr(others)));
}

TEST(AdviceLineTest, NamesTheCauseAndOneSetting) {
  for (const Row& row : kRows) {
    const std::string line = AdviceLine(MetricsOf(row), row.facts);
    EXPECT_THAT(line, HasSubstr(row.cause)) << row.name;
    EXPECT_THAT(line, HasSubstr(row.setting)) << row.name;
  }
}

TEST(AdviceLineTest, StrictTrustIsNamedOnlyWhereMuchMustStay) {
  Metrics metrics = MetricsOf(kRows[0]);
  metrics.devices[0].stats.pinned_bytes = kGiB;
  EXPECT_THAT(AdviceLine(metrics, {.strict = true}), HasSubstr("SPILLWAY_HOST_MEMORY"));
}

TEST(AdviceLineTest, NoSettingHelpsOnceNothingLeavesTheGpu) {
  Metrics metrics = MetricsOf(kRows[0]);
  metrics.evictions_ended = "cuSomething";
  EXPECT_THAT(AdviceLine(metrics, {}),
              ::testing::EndsWith("; no setting would help: nothing left the GPU after cuSomething"));
}

TEST(AdviceLineTest, NothingMovedNothingSaid) {
  EXPECT_EQ(AdviceLine(Metrics(), {}), "");
  Metrics metrics = MetricsOf(kRows[0]);
  metrics.devices[0].stats.spilled_bytes = metrics.devices[0].stats.fetched_bytes = 0;
  EXPECT_EQ(AdviceLine(metrics, {}), "");
}

TEST(AdviceLineTest, TheTimeIsThatOfAllDevices) {
  Metrics metrics = MetricsOf(kRows[0]);
  metrics.devices.push_back(metrics.devices[0]);
  EXPECT_THAT(AdviceLine(metrics, {}), HasSubstr("52.0 s of 200.0 s (26.0 %)"));
}

}  // namespace
}  // namespace spillway::integration
