#include "policy/bound/window_bound.h"

#include <gtest/gtest.h>

#include "policy/bound/quick_bound.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

// A link of 1 GB/s in either direction, and so many bytes on the kernels' side.
WindowLink LinkOf(Bytes inner) { return {inner, {{1e-9, 0}, {0, 1e-9}}}; }

// 20 kernels of 10 ms. The first ten do nothing; each of the last ten updates a tensor of 20 MB of its own, as an
// optimizer does.
Workload UpdateWorkload() {
  Workload workload;
  for (uint32_t k = 0; k < 20; ++k) workload.kernels.push_back({"k", 10 * kMilli, {}, {}, 0});
  for (uint32_t t = 0; t < 10; ++t) {
    workload.tensors.push_back({20 * kMega, true});
    workload.kernels[10 + t].inputs = workload.kernels[10 + t].outputs = {t};
  }
  return workload;
}

// The last ten kernels read 200 MB, of which 60 are there when they begin. The other 140 come in while they
// run, which would take 100 ms. The first ten have nothing to do but to wait for their own 100.
TEST(WindowBoundTest, WhatAStretchReadsComesInWhileItRuns) {
  const Workload workload = UpdateWorkload();
  const Lifetimes lifetimes = FindLifetimes(workload);
  EXPECT_EQ(FindWindowBound(workload, lifetimes, {LinkOf(60 * kMega)}), 240 * kMilli);
  EXPECT_EQ(FindWindowBound(workload, lifetimes, {LinkOf(100 * kMega)}), 200 * kMilli);
  EXPECT_EQ(FindWindowBound(workload, lifetimes, {LinkOf(400 * kMega), LinkOf(60 * kMega)}), 240 * kMilli);
  EXPECT_EQ(FindWindowBound(workload, lifetimes, {}), 200 * kMilli);
}

// The same with the links' directions apart: 140 MB are made in the stretch and go out, in twice the time.
TEST(WindowBoundTest, WhatAStretchMakesGoesOutWhileItRuns) {
  const Workload workload = UpdateWorkload();
  const Lifetimes lifetimes = FindLifetimes(workload);
  const WindowLink slow_out{60 * kMega, {{1e-9, 0}, {0, 2e-9}}};
  EXPECT_EQ(FindWindowBound(workload, lifetimes, {slow_out}), 380 * kMilli);
  const WindowLink in_turns{60 * kMega, {{1e-9, 1e-9}}};
  EXPECT_EQ(FindWindowBound(workload, lifetimes, {in_turns}), 380 * kMilli);
}

// Bytes that are overwritten unread need not come in, and bytes that no kernel reads again need not go out.
TEST(WindowBoundTest, WhatIsNotReadAgainDoesNotCount) {
  Workload workload = UpdateWorkload();
  for (uint32_t k = 10; k < 20; ++k) workload.kernels[k].inputs = {};
  EXPECT_EQ(FindWindowBound(workload, FindLifetimes(workload), {LinkOf(60 * kMega)}), 200 * kMilli);
}

// Content from no kernel need not go out: there is a copy. It comes in all the same.
TEST(WindowBoundTest, WhatNoKernelWritesOnlyComesIn) {
  Workload workload = UpdateWorkload();
  for (uint32_t k = 10; k < 20; ++k) workload.kernels[k].outputs = {};
  const WindowLink slow_out{60 * kMega, {{1e-9, 0}, {0, 2e-9}}};
  EXPECT_EQ(FindWindowBound(workload, FindLifetimes(workload), {slow_out}), 240 * kMilli);
}

// Tensors of the iteration: made in its first half and read in the second, in the same order. 140 MB go out in
// the first half and come in in the second.
TEST(WindowBoundTest, EachStretchHasItsOwnTime) {
  Workload workload;
  for (uint32_t k = 0; k < 20; ++k) workload.kernels.push_back({"k", kMilli, {}, {}, 0});
  for (uint32_t t = 0; t < 10; ++t) {
    workload.tensors.push_back({20 * kMega, false});
    workload.kernels[t].outputs = {t};
    workload.kernels[10 + t].inputs = {t};
  }
  const Lifetimes lifetimes = FindLifetimes(workload);
  EXPECT_EQ(FindWindowBound(workload, lifetimes, {LinkOf(60 * kMega)}), 280 * kMilli);
}

// More kernels than cuts: no more than with all of them, and not by much.
TEST(WindowBoundTest, LongIterationsAreCutMoreCoarsely) {
  Workload workload = UpdateWorkload();
  Workload longer;
  longer.tensors = workload.tensors;
  for (const WorkloadKernel& kernel : workload.kernels) {
    longer.kernels.push_back(kernel);
    for (int i = 0; i < 99; ++i) longer.kernels.push_back({"k", 0, {}, {}, 0});
  }
  const Nanos bound = FindWindowBound(longer, FindLifetimes(longer), {LinkOf(60 * kMega)});
  EXPECT_LE(bound, 240 * kMilli);
  EXPECT_GE(bound, 220 * kMilli);
}

TEST(WindowBoundTest, IsPartOfTheQuickBound) {
  const Workload workload = UpdateWorkload();
  const Lifetimes lifetimes = FindLifetimes(workload);
  const Machine machine = PlainMachine(60 * kMega, 1000 * kMega);
  EXPECT_EQ(FindQuickBound(workload, lifetimes, machine).window, 240 * kMilli);
  Machine shared = machine;
  shared.pcie_both = {0.5e9, 0.5e9};
  EXPECT_EQ(FindQuickBound(workload, lifetimes, shared).window, 380 * kMilli);
}

}  // namespace
}  // namespace spillway::policy
