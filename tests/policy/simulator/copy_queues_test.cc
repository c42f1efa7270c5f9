#include "policy/simulator/copy_queues.h"

#include <gtest/gtest.h>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

TEST(DriveLoadsTest, TheSoonestToHaveWrittenAndReadBack) {
  DriveLoads loads({{3e9, 3e9}, {1e9, 1e9}});
  // 60 MB: 40 ms there and back on drive 0, 120 on drive 1. Each more in the queue of drive 0 adds as much.
  EXPECT_EQ(loads.Pick(60 * kMega), 0u);
  loads.AddWrite(0, 60 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 0u);
  loads.AddWrite(0, 60 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 0u);  // 120 on both: the first
  loads.AddWrite(0, 60 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 1u);
  // Written, it has only to be read: 20 ms each on drive 0, and 40 for the new one.
  loads.RemoveWrite(0, 180 * kMega);
  loads.AddRead(0, 180 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 0u);
  loads.AddRead(0, 90 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 1u);
  loads.RemoveRead(0, 270 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 0u);
}

TEST(DriveLoadsTest, SpreadsByRate) {
  DriveLoads loads({{2.4e9, 2.4e9}, {0.8e9, 0.8e9}});
  int on_first = 0;
  for (int i = 0; i < 400; ++i) {
    const size_t drive = loads.Pick(kMega);
    loads.AddWrite(drive, kMega);
    on_first += drive == 0;
  }
  EXPECT_EQ(on_first, 300);
}

// The host has all of the link if nothing else is under way; a drive has its share of it, and goes alone
// where it shares its limit.
TEST(CopyQueuesTest, TheLinkIsShared) {
  Machine machine = WithDrives(PlainMachine(1, 1), {{0.6e9, 0.6e9}, {0.2e9, 0.2e9}});
  CopyQueues queues(machine);
  EXPECT_EQ(queues.RateNow(CopyQueues::kHostOut), 1e9);
  const CopyQueues::Queue out = CopyQueues::DriveOut(0);
  EXPECT_EQ(queues.RateNow(out), 0.6e9);
  queues.Push(CopyQueues::kHostOut, {1, 0, 7, kMega, 0, 9});
  EXPECT_DOUBLE_EQ(queues.RateNow(out), 0.6e9 * 0.625);  // the drives together have half while the host asks
  queues.Begin(out, {true, 3, 10, 0.375e9});
  EXPECT_DOUBLE_EQ(queues.RateNow(CopyQueues::kHostOut), 0.625e9);
  EXPECT_NE(queues.RateNow(queues.Back(out)), 0);
  machine.ssd_shared = true;
  EXPECT_EQ(queues.RateNow(queues.Back(out)), 0);
  queues.End(out);
  EXPECT_NE(queues.RateNow(queues.Back(out)), 0);
}

TEST(CopyQueuesTest, PromotionsTakeNoneOfTheLink) {
  Machine machine = WithDrives(PlainMachine(1, 1), {{0.6e9, 0.5e9}, {0.2e9, 0.2e9}});
  CopyQueues queues(machine);
  const CopyQueues::Queue out = CopyQueues::DriveOut(0), in = queues.Back(out);
  EXPECT_EQ(queues.PromotionRate(in), 0.6e9);
  queues.Begin(in, {true, 3, 10, 0.6e9, /*promotes=*/true});
  EXPECT_EQ(queues.RateNow(queues.HostIn()), 1e9);
  machine.ssd_shared = true;
  EXPECT_EQ(queues.RateNow(out), 0);
  queues.End(in);
  queues.Begin(out, {true, 3, 10, 0.5e9});
  EXPECT_EQ(queues.PromotionRate(in), 0);
}

TEST(CopyQueuesTest, TheMostUrgentGoesFirstAndThenWhoCameFirst) {
  const Machine machine = PlainMachine(1, 1);
  CopyQueues queues(machine);
  const CopyQueues::Queue out = CopyQueues::DriveOut(0);
  queues.Push(out, {5, 0, 1, kMega, 0, 9});
  queues.Push(out, {3, 1, 2, kMega, 0, 9});
  queues.Push(out, {3, 2, 3, kMega, 0, 9});
  for (const uint32_t part : {2u, 3u, 1u}) {
    EXPECT_EQ(queues.writes(out).top().part, part);
    queues.PopWrite(out);
  }
  queues.reads(queues.HostIn()).push({8, 4});
  queues.reads(queues.HostIn()).push({6, 5});
  EXPECT_EQ(queues.reads(queues.HostIn()).top().part, 5u);
}

}  // namespace
}  // namespace spillway::policy
