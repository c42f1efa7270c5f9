#include "policy/simulator/execution_stats.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::policy {
namespace {

// Three iterations of two kernels; the last two are measured.
TEST(ExecutionStatsTest, MeansOfTheLastTwoIterations) {
  ExecutionOptions options;
  options.iterations = 3;
  ExecutionStats metrics(2, options);
  metrics.Happened({});
  metrics.Moved(0, 20, 100, /*out=*/true, /*host=*/true);  // half of it is measured
  metrics.Moved(10, 20, 60, /*out=*/false, /*host=*/false);
  metrics.Moved(20, 70, 50, &Traffic::ssd_to_host);  // 40 of them
  metrics.Waited(0, 5, {});
  metrics.Waited(2, 6, {.arriving = true, .reading = true, .writing = true});
  metrics.Waited(5, 8, {.arriving = false, .reading = true, .writing = true});
  for (const Nanos end : {10, 30, 60}) metrics.IterationEnded(end);
  EXPECT_EQ(metrics.iterations(), 3u);
  const Execution run = metrics.Take(/*ideal=*/15, 7, 8);
  EXPECT_EQ(run.iteration, 25);
  EXPECT_EQ(run.ideal, 15);
  EXPECT_DOUBLE_EQ(run.traffic.gpu_to_host, 25);
  EXPECT_DOUBLE_EQ(run.traffic.ssd_to_gpu, 30);
  EXPECT_DOUBLE_EQ(run.traffic.ssd_to_host, 20);
  EXPECT_EQ(run.read_waits, (std::vector<Nanos>{6, 0}));
  EXPECT_EQ(run.read_wait, 3);
  EXPECT_EQ(run.ssd_read_wait, 3);
  EXPECT_EQ(run.memory_wait, 4);
  EXPECT_EQ(run.ssd_memory_wait, 4);
  EXPECT_TRUE(run.events.empty());  // not asked for
}

}  // namespace
}  // namespace spillway::policy
