#include "integration/cli/report/report_charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "integration/cli/report/comparison_charts.h"

namespace spillway::integration {
namespace {

size_t RowsOf(const nlohmann::json& spec) {
  size_t rows = 0;
  if (spec.contains("data")) rows += spec["data"]["values"].size();
  if (spec.contains("layer")) {
    for (const nlohmann::json& layer : spec["layer"]) rows += RowsOf(layer);
  }
  return rows;
}

TEST(ReportChartsTest, NothingToShowIsNoChart) {
  const ReportData data;
  const ReportFacts facts;
  EXPECT_FALSE(MemoryChart(data, facts) || LinkChart(data) || LostTimeChart(data, facts) ||
               IterationsChart(data, facts));
  EXPECT_TRUE(DriveCharts(data).empty());
  EXPECT_FALSE(OneIterationChart(data, facts) || MoveSizesChart(data) || BoundChart(facts, WhatIf(), data));
  EXPECT_FALSE(WhatIfChart(WhatIf(), WhatIfSweep(), facts));
}

TEST(ReportChartsTest, ALongRunIsDrawnWithAFewHundredRows) {
  ReportData data;
  data.job.seconds = 4096;
  ReportFacts facts;
  facts.seconds = 4096;
  const Column samples(4096, 1e9);
  data.memory = ReportMemory{1, samples, samples, samples, samples};
  data.transfers = ReportTransfers{1, samples, samples, {}};
  ReportMoves moves;
  moves.kinds = {"gpu_to_host", "host_to_gpu"};
  for (size_t i = 0; i < 100'000; ++i) {
    moves.start_s.push_back(static_cast<double>(i) * 0.04);
    moves.seconds.push_back(0.02);
    moves.bytes.push_back(static_cast<double>(size_t{1} << (i % 30)));
    moves.kind.push_back(i % 2);
  }
  data.moves = moves;
  data.iterations = ReportIterations{{1000, 2000}, {1000, 1000}};
  EXPECT_LE(RowsOf(MemoryChart(data, facts)->spec), 1700u);
  EXPECT_LE(RowsOf(LinkChart(data)->spec), 820u);
  EXPECT_LE(RowsOf(MoveSizesChart(data)->spec), 60u);
  EXPECT_LE(RowsOf(OneIterationChart(data, facts)->spec), 1500u);
}

TEST(ReportChartsTest, ManyDrivesAreDrawnAsOne) {
  ReportData data;
  data.transfers = ReportTransfers{1, {}, {}, {}};
  for (int d = 0; d < 3; ++d)
    data.transfers->disks.push_back({"/disk", std::nullopt, {1e9}, {2e9}, "", std::nullopt});
  EXPECT_EQ(DriveCharts(data).size(), 3u);
  for (int d = 0; d < 3; ++d)
    data.transfers->disks.push_back({"/disk", std::nullopt, {1e9}, {2e9}, "", std::nullopt});
  const std::vector<Chart> charts = DriveCharts(data);
  ASSERT_EQ(charts.size(), 1u);
  EXPECT_EQ(charts[0].title, "Spill files in all 6 directories");
  EXPECT_EQ(charts[0].spec["data"]["values"][0]["v"], 12.0);
}

TEST(ReportChartsTest, AxesHaveTheUnitOfTheirValues) {
  ReportData data;
  data.memory = ReportMemory{1, {3e6, 2e6}, {0, 1e6}, {}, {}};
  const Chart chart = *MemoryChart(data, ReportFacts());
  EXPECT_EQ(chart.spec["layer"][0]["encoding"]["y"]["title"], "MiB");
  EXPECT_EQ(chart.legend.size(), 3u);  // no budget and no live bytes are known
}

TEST(ReportChartsTest, NamesOfMoves) {
  EXPECT_EQ(MoveName("gpu_to_host"), "GPU → host");
  EXPECT_EQ(MoveName("disk_to_gpu"), "disk → GPU");
  EXPECT_EQ(MoveName("other"), "other");
}

}  // namespace
}  // namespace spillway::integration
