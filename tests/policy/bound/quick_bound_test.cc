#include "policy/bound/quick_bound.h"

#include <gtest/gtest.h>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

// 50 MB have to leave in the 25 ms before kernel 5 and to return in the 25 after kernel 6, one of which is in
// between in either case: 50 + 5 + 50 ms.
TEST(QuickBoundTest, WorkedByHand) {
  const Workload workload = MountainWorkload(5 * kMilli);
  const Lifetimes lifetimes = FindLifetimes(workload);
  QuickBound bound = FindQuickBound(workload, lifetimes, PlainMachine(150 * kMega, 1000 * kMega));
  EXPECT_EQ(bound.compute, 60 * kMilli);
  EXPECT_EQ(bound.load, 50 * kMilli);
  EXPECT_EQ(bound.phase, 105 * kMilli);
  EXPECT_EQ(bound.ssd_phase, 60 * kMilli);
  EXPECT_EQ(bound.Best(), 105 * kMilli);
  Machine slow_ssd = PlainMachine(150 * kMega, 20 * kMega);
  slow_ssd.ssd_read = slow_ssd.ssd_write = 0.25e9;  // 30 MB in 120 ms
  bound = FindQuickBound(workload, lifetimes, slow_ssd);
  EXPECT_EQ(bound.ssd_phase, 245 * kMilli);
  EXPECT_EQ(bound.ssd_shared, 0);
  slow_ssd.ssd_shared = true;  // out and in again, one after the other
  EXPECT_EQ(FindQuickBound(workload, lifetimes, slow_ssd).ssd_shared, 240 * kMilli);
  EXPECT_EQ(FindQuickBound(workload, lifetimes, PlainMachine(200 * kMega, 0)).Best(), 60 * kMilli);
}

// 50 MB out and 50 MB in at 1 GB/s each, 0.7 GB/s while both run: at best 71 ms of both.
TEST(QuickBoundTest, DirectionsThatShareMoveBothWaysOnce) {
  const Workload workload = MountainWorkload(1 * kMilli);
  const Lifetimes lifetimes = FindLifetimes(workload);
  Machine machine = PlainMachine(150 * kMega, 1000 * kMega);
  EXPECT_EQ(FindQuickBound(workload, lifetimes, machine).pcie_shared, 0);
  machine.pcie_both = {0.7e9, 0.7e9};
  EXPECT_NEAR(static_cast<double>(FindQuickBound(workload, lifetimes, machine).pcie_shared), 50e6 / 0.7, 2);
  machine.pcie_both = {0.5e9, 0.5e9};
  EXPECT_NEAR(static_cast<double>(FindQuickBound(workload, lifetimes, machine).pcie_shared), 100e6, 2);
}

}  // namespace
}  // namespace spillway::policy
