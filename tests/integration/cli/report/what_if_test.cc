#include "integration/cli/report/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "integration/cli/common/units.h"
#include "integration/cli/simulate/simulation_run.h"
#include "policy/model/workload_file.h"

namespace spillway::integration {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Eight activations of 100 MiB each, made one after the other and used in turn backwards: 800 MiB at the
// peak.
std::string Iteration() {
  policy::Workload workload;
  workload.tensors.resize(8);
  for (policy::WorkloadTensor& tensor : workload.tensors) tensor.bytes = 100 << 20;
  for (uint32_t i = 0; i < 16; ++i) {
    policy::WorkloadKernel& kernel = workload.kernels.emplace_back();
    kernel.duration = 20'000'000;
    if (i < 8)
      kernel.outputs = {i};
    else
      kernel.inputs = {15 - i};
  }
  return policy::EncodeWorkload(workload);
}

// 64 tensors of 12.5 MiB, kept and updated in turn, three times: where half of them fit, one leaves while
// another comes.
std::string RoundOfUpdates() {
  policy::Workload workload;
  workload.tensors.resize(64);
  for (policy::WorkloadTensor& tensor : workload.tensors) {
    tensor.bytes = 25 << 19;
    tensor.persistent = true;
  }
  for (uint32_t i = 0; i < 3 * 64; ++i) {
    policy::WorkloadKernel& kernel = workload.kernels.emplace_back();
    kernel.duration = 2'500'000;
    kernel.inputs = kernel.outputs = {i % 64};
  }
  return policy::EncodeWorkload(workload);
}

ReportData RunOn(double gpu_mib, double host_mib) {
  ReportData data;
  data.iteration = Iteration();
  data.capacity.gpu_bytes = gpu_mib * kMiB;
  data.capacity.host_bytes = host_mib * kMiB;
  data.capacity.disks = std::vector<ReportDisk>(1);
  data.metrics.host_in = data.metrics.host_out = 3e9;
  data.metrics.disk_in = data.metrics.disk_out = 2e9;
  return data;
}

const WhatIfSweep& SweepOf(const WhatIf& what_if, WhatIfAxis axis) {
  for (const WhatIfSweep& sweep : what_if.sweeps) {
    if (sweep.axis == axis) return sweep;
  }
  ADD_FAILURE() << "no such sweep";
  return what_if.sweeps.front();
}

std::vector<double> Factors(const WhatIfSweep& sweep) {
  std::vector<double> factors;
  for (const WhatIfPoint& point : sweep.points) factors.push_back(point.factor);
  return factors;
}

WhatIf Simulated(const ReportData& data, unsigned threads = 2, double most_cpu_seconds = 60) {
  Workers workers(threads);
  return SimulateWhatIf(data, &workers, most_cpu_seconds);
}

void BurnCpu(double seconds) {
  const double until = CpuSeconds() + seconds;
  while (CpuSeconds() < until) {
  }
}

// A link whose directions share is slower for bytes that go out and in at once. The rates are the run's own,
// less by the ratio that was measured.
TEST(WhatIfTest, TheDirectionsOfTheLinkShareWhatWasMeasured) {
  ReportData data = RunOn(450, 4000);
  data.iteration = RoundOfUpdates();
  data.metrics.host_in = data.metrics.host_out = 0.4e9;
  const WhatIf independent = Simulated(data);
  EXPECT_FALSE(independent.link_in_both);
  EXPECT_THAT(independent.assumed, Contains(testing::HasSubstr("both directions")));
  data.metrics.link = ReportLink{20e9, 20e9, 10e9, 10e9};
  const WhatIf shared = Simulated(data);
  ASSERT_EQ(shared.missing, "");
  EXPECT_THAT(shared.assumed, testing::Not(Contains(testing::HasSubstr("both directions"))));
  EXPECT_NEAR(*shared.link_in_both, 0.2e9, 2);
  EXPECT_GT(shared.iteration_s, 1.5 * independent.iteration_s);
  // A pair that is slower than taking turns is a slip of the measurement.
  data.metrics.link = ReportLink{20e9, 20e9, 9.9e9, 9.9e9};
  EXPECT_EQ(Simulated(data).missing, "");
}

TEST(WhatIfTest, EachSweepHasTheRunsOwnPoint) {
  // Of host memory half would hold everything, too.
  const WhatIf what_if = Simulated(RunOn(450, 4000));
  ASSERT_EQ(what_if.missing, "");
  EXPECT_EQ(what_if.peak_live_bytes, 800 * kMiB);
  for (const WhatIfAxis axis : {WhatIfAxis::kGpuMemory, WhatIfAxis::kHostMemory, WhatIfAxis::kDisk})
    EXPECT_THAT(Factors(SweepOf(what_if, axis)), Contains(1.0)) << static_cast<int>(axis);
  for (const WhatIfPoint& point : SweepOf(what_if, WhatIfAxis::kHostMemory).points) {
    if (point.factor == 1) {
      EXPECT_DOUBLE_EQ(point.iteration_s, what_if.iteration_s);
    }
  }
  EXPECT_THAT(Factors(SweepOf(what_if, WhatIfAxis::kHostMemory)), ::testing::ElementsAre(0.5, 1));
  EXPECT_THAT(Factors(SweepOf(what_if, WhatIfAxis::kGpuMemory)),
              ::testing::ElementsAre(0.5, 0.75, 1, 1.25, 1.5, 2));
}

TEST(WhatIfTest, AnIterationThatFitsIsTriedWithLessGpuMemoryAlone) {
  const WhatIf what_if = Simulated(RunOn(2000, 500));
  ASSERT_EQ(what_if.missing, "");
  const std::vector<WhatIfPoint>& points = SweepOf(what_if, WhatIfAxis::kGpuMemory).points;
  ASSERT_EQ(points.size(), 6u);
  EXPECT_EQ(points.front().value, 400 * kMiB);
  EXPECT_GT(points.front().iteration_s, what_if.iteration_s);
  EXPECT_EQ(points.back().factor, 1);
  EXPECT_EQ(points.back().iteration_s, what_if.iteration_s);
  for (const WhatIfAxis axis : {WhatIfAxis::kHostMemory, WhatIfAxis::kDisk}) {
    EXPECT_TRUE(SweepOf(what_if, axis).points.empty());
    EXPECT_THAT(SweepOf(what_if, axis).missing, HasSubstr("fits the GPU"));
  }
}

// `spillway run` makes a page of each rank: those of the first must not take the time of the last.
TEST(WhatIfTest, ItsTimeBeginsWithTheCall) {
  const double most = 0.5;
  BurnCpu(most);
  const WhatIf what_if = Simulated(RunOn(450, 4000), 2, most);
  for (const WhatIfSweep& sweep : what_if.sweeps) {
    for (const WhatIfPoint& point : sweep.points) EXPECT_EQ(point.problem, "");
  }
  const WhatIf late = Simulated(RunOn(450, 4000), 2, 0);
  ASSERT_EQ(late.missing, "") << "the machine of the run is simulated all the same";
  for (const WhatIfPoint& point : SweepOf(late, WhatIfAxis::kGpuMemory).points)
    EXPECT_EQ(point.problem, point.factor == 1 ? "" : "left out: the simulation took too long");
}

// The bound of the run's machine is a near one, without CLP as well; those of others are quick ones.
TEST(WhatIfTest, TheRunsOwnBoundIsNear) {
  const WhatIf what_if = Simulated(RunOn(450, 300));
  ASSERT_EQ(what_if.missing, "");
  EXPECT_TRUE(what_if.bound_is_near);
  EXPECT_LE(what_if.bound_s, what_if.iteration_s);
  for (const WhatIfPoint& point : SweepOf(what_if, WhatIfAxis::kGpuMemory).points) {
    if (point.factor == 1) {
      EXPECT_LE(point.percent_of_bound, 100 * what_if.bound_s / what_if.iteration_s + 1e-6);
    }
  }
}

TEST(WhatIfTest, IsTheSameOnAnyNumberOfThreads) {
  const WhatIf one = Simulated(RunOn(450, 300), 1);
  ASSERT_EQ(one.missing, "");
  for (const unsigned threads : {2u, 5u}) {
    const WhatIf more = Simulated(RunOn(450, 300), threads);
    EXPECT_EQ(more.iteration_s, one.iteration_s);
    EXPECT_EQ(more.bound_s, one.bound_s);
    ASSERT_EQ(more.sweeps.size(), one.sweeps.size());
    for (size_t s = 0; s < one.sweeps.size(); ++s) {
      ASSERT_EQ(more.sweeps[s].points.size(), one.sweeps[s].points.size());
      for (size_t p = 0; p < one.sweeps[s].points.size(); ++p) {
        const WhatIfPoint &is = more.sweeps[s].points[p], &was = one.sweeps[s].points[p];
        EXPECT_EQ(is.iteration_s, was.iteration_s);
        EXPECT_EQ(is.percent_of_bound, was.percent_of_bound);
        EXPECT_EQ(is.problem, was.problem);
      }
    }
  }
}

}  // namespace
}  // namespace spillway::integration
