// What metrics and summary say of a spill directory's health.

#include "integration/report/directory_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/report/metrics_helpers.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// One directory without trouble, and one that is closed.
Metrics WithDirectories() {
  Metrics metrics = TwoDevices();
  io::DirectoryStats good;
  good.path = "/good";
  good.bytes_written = 5'000'000'000;
  io::DirectoryStats sick;
  sick.path = "/si\"ck";
  sick.errors = 3;
  sick.retries = 12;
  sick.slots_quarantined = 4;
  sick.slots_moved = 5;
  sick.checksum_mismatches = 1;
  sick.closed = true;
  sick.why_closed = "does not answer";
  sick.times_closed = 2;
  sick.last_closure = sick.why_closed;
  metrics.disk.directories = {good, sick};
  return metrics;
}

TEST(MetricsJsonTest, SaysHowEachDirectoryDoes) {
  const auto json = nlohmann::json::parse(MetricsJson(WithDirectories()))["directories"];
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["path"], "/good");
  EXPECT_EQ(json[0]["closed"], false);
  EXPECT_DOUBLE_EQ(json[0]["written_tb_per_day"], 34.56);  // 5 GB in 12.5 s
  EXPECT_EQ(json[1]["written_tb_per_day"], 0);
  EXPECT_EQ(json[1]["errors"], 3);
  EXPECT_EQ(json[1]["mismatches"], 1);
  EXPECT_EQ(json[1]["moved_slots"], 5);
  EXPECT_EQ(json[1]["why_closed"], "does not answer");
  EXPECT_EQ(json[1]["closures"], 2);
  EXPECT_EQ(json[1]["last_closure"], "does not answer");
}

TEST(MetricsJsonTest, NothingIsWrittenInADayBeforeTheFirstBlock) {
  Metrics metrics = WithDirectories();
  metrics.seconds = 0;
  EXPECT_EQ(nlohmann::json::parse(MetricsJson(metrics))["directories"][0]["written_tb_per_day"], 0);
}

TEST(SummaryTest, SaysOfAGoodDirectoryItsWearAlone) {
  EXPECT_THAT(Summary(WithDirectories()),
              HasSubstr("; /good: 34.56 TB written a day (a drive of 600 TBW lasts 17 days); /si"));
  Metrics metrics = WithDirectories();
  metrics.disk.directories[0].bytes_written = 4096;
  EXPECT_THAT(Summary(metrics), HasSubstr("; /good: less than 0.01 TB written a day; /si"));
  metrics.disk.directories[0].bytes_written = 0;
  EXPECT_THAT(Summary(metrics), Not(HasSubstr("/good")));
}

TEST(SummaryTest, SaysWhatTroubleADirectoryHad) {
  Metrics metrics = WithDirectories();
  EXPECT_THAT(
      Summary(metrics),
      HasSubstr("; /si\"ck: failed transfers: 3, retries: 12, wrong checksums: 1, slots out of use: 4, "
                "slots moved away: 5, closures: 2, closed now: it does not answer"));
  metrics.disk.directories[1].closed = false;
  EXPECT_THAT(Summary(metrics), HasSubstr("closures: 2 (the last: does not answer)"));
}

}  // namespace
}  // namespace spillway::integration
