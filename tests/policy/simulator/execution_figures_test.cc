#include "policy/simulator/execution_figures.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::policy {
namespace {

// Three iterations of two kernels; the last two are measured.
TEST(ExecutionFiguresTest, MeansOfTheLastTwoIterations) {
  ExecutionOptions options;
  options.iterations = 3;
  ExecutionFigures figures(2, options);
  figures.Happened({});
  figures.Moved(0, 20, 100, /*out=*/true, /*host=*/true);  // half of it is measured
  figures.Moved(10, 20, 60, /*out=*/false, /*host=*/false);
  figures.Waited(0, 5, {});
  figures.Waited(2, 6, {.arriving = true, .reading = true, .writing = true});
  figures.Waited(5, 8, {.arriving = false, .reading = true, .writing = true});
  for (const Nanos end : {10, 30, 60}) figures.IterationEnded(end);
  EXPECT_EQ(figures.iterations(), 3u);
  const Execution run = figures.Take(/*ideal=*/15, 7, 8);
  EXPECT_EQ(run.iteration, 25);
  EXPECT_EQ(run.ideal, 15);
  EXPECT_DOUBLE_EQ(run.traffic.gpu_to_host, 25);
  EXPECT_DOUBLE_EQ(run.traffic.ssd_to_gpu, 30);
  EXPECT_EQ(run.read_waits, (std::vector<Nanos>{6, 0}));
  EXPECT_EQ(run.read_wait, 3);
  EXPECT_EQ(run.ssd_read_wait, 3);
  EXPECT_EQ(run.memory_wait, 4);
  EXPECT_EQ(run.ssd_memory_wait, 4);
  EXPECT_TRUE(run.events.empty());  // not asked for
}

}  // namespace
}  // namespace spillway::policy
