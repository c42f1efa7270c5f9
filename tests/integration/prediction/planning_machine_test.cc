#include "integration/prediction/planning_machine.h"

#include <gtest/gtest.h>

#include "integration/prediction/trace_recorder.h"
#include "tests/integration/hooks/fake_residency.h"
#include "tests/sizes.h"

namespace spillway::integration {
namespace {

using allocator::BlockId;

// Launches of blocks 1 and 2.
policy::Trace Sequence() {
  policy::Trace trace;
  for (const uint32_t block : {1, 2, 1}) {
    const policy::TraceBlock named = TraceBlockOf(BlockId(0, block));
    trace.AddLaunch(block, {&named, 1});
  }
  return trace;
}

TEST(PlanningMachineTest, HasWhatIsKnownByNow) {
  PlanningMachine machine([] { return uint64_t{7 * kMiB}; }, /*has_disk=*/true);
  const policy::Trace sequence = Sequence();
  EXPECT_EQ(machine.Now(nullptr, 0, sequence, {}, {}).machine.host_bytes, 7 * kMiB);
  EXPECT_EQ(machine.Now(nullptr, 0, sequence, {}, {}).machine.gpu_bytes, 0u);
  FakeResidency residency;
  residency.stats.chunk_target_bytes = 100 * kMiB;
  residency.stats.host_in_rate = 3;
  residency.stats.host_in_both_rate = 2;
  residency.stats.disk_out_rate = 5;
  const policy::RuntimeMachine now = machine.Now(&residency, 0, sequence, {}, {});
  EXPECT_EQ(now.machine.gpu_bytes, 100 * kMiB);
  EXPECT_EQ(now.machine.pcie_in, 3);
  EXPECT_EQ(now.machine.pcie_both.in, 2);
  EXPECT_EQ(now.machine.ssd_write, 5);
  EXPECT_TRUE(now.has_disk);
}

// A spent write budget leaves the disk a rate of its own, also where none was measured.
TEST(PlanningMachineTest, TheDiskWritesNoFasterThanASpentBudgetAllows) {
  PlanningMachine machine(nullptr, true);
  FakeResidency residency;
  residency.stats.disk_writes_bound = 2;
  EXPECT_EQ(machine.Now(&residency, 0, Sequence(), {}, {}).machine.ssd_write, 2);
  residency.stats.disk_out_rate = 5;
  EXPECT_EQ(machine.Now(&residency, 0, Sequence(), {}, {}).machine.ssd_write, 2);
  residency.stats.disk_out_rate = 1;
  EXPECT_EQ(machine.Now(&residency, 0, Sequence(), {}, {}).machine.ssd_write, 1);
}

// What an earlier run measured counts until this one has.
TEST(PlanningMachineTest, KnownRatesCountUntilTheirOwnAreMeasured) {
  PlanningMachine machine(nullptr, true, {10, 9, 8, 7, 6, 5});
  FakeResidency residency;
  policy::Machine now = machine.Now(&residency, 0, Sequence(), {}, {}).machine;
  EXPECT_EQ(now.pcie_in, 10);
  EXPECT_EQ(now.pcie_out, 9);
  EXPECT_EQ(now.pcie_both.in, 8);
  EXPECT_EQ(now.pcie_both.out, 7);
  EXPECT_EQ(now.ssd_read, 6);
  EXPECT_EQ(now.ssd_write, 5);
  residency.stats.host_in_rate = 3;
  residency.stats.disk_in_rate = 2;
  residency.stats.disk_out_rate = 1;
  now = machine.Now(&residency, 0, Sequence(), {}, {}).machine;
  EXPECT_EQ(now.pcie_in, 3);
  EXPECT_EQ(now.pcie_out, 9);
  EXPECT_EQ(now.pcie_both.in, 0) << "of another link than the measured one";
  EXPECT_EQ(now.ssd_read, 2);
  EXPECT_EQ(now.ssd_write, 1);
}

TEST(PlanningMachineTest, ASpentWriteBudgetBoundsAKnownRate) {
  PlanningMachine machine(nullptr, true, {0, 0, 0, 0, 0, 5});
  FakeResidency residency;
  residency.stats.disk_writes_bound = 2;
  EXPECT_EQ(machine.Now(&residency, 0, Sequence(), {}, {}).machine.ssd_write, 2);
  residency.stats.disk_writes_bound = 8;
  EXPECT_EQ(machine.Now(&residency, 0, Sequence(), {}, {}).machine.ssd_write, 5);
}

// Plans count whole chunks; of a block's last one only the part that the job asked for is copied.
TEST(PlanningMachineTest, RatesAreThoseOfWholeChunks) {
  PlanningMachine machine(nullptr, true);
  FakeResidency residency;
  residency.stats.host_in_rate = 30;
  residency.stats.host_out_rate = 20;
  residency.stats.host_in_both_rate = 10;
  residency.stats.disk_in_rate = 6;
  residency.stats.disk_out_rate = 2;
  const auto block = [](uint32_t id) { return TraceBlockOf(BlockId(0, id)); };
  const policy::BlockSizes sizes = {{block(1), 4 * kMiB}, {block(2), 2 * kMiB}, {block(3), 90 * kMiB}};
  policy::BlockSizes copied = {{block(1), 3 * kMiB}, {block(2), 1 * kMiB}, {block(3), 1 * kMiB}};
  const policy::Machine now = machine.Now(&residency, 1, Sequence(), sizes, copied).machine;
  EXPECT_EQ(now.pcie_in, 45) << "6 MiB of blocks 1 and 2, of which 4 are copied";
  EXPECT_EQ(now.pcie_out, 30);
  EXPECT_EQ(now.pcie_both.in, 15);
  EXPECT_EQ(now.ssd_read, 9);
  EXPECT_EQ(now.ssd_write, 3);
  copied[block(1)] = 4 * kMiB;
  copied[block(2)] = 2 * kMiB;
  EXPECT_EQ(machine.Now(&residency, 2, Sequence(), sizes, copied).machine.pcie_in, 30) << "another sequence";
}

TEST(PlanningMachineTest, PinnedBlocksOutsideOfTheIterationTakeTheirMemoryFromPlans) {
  PlanningMachine machine(nullptr, false);
  FakeResidency residency;
  residency.stats.chunk_target_bytes = 100 * kMiB;
  residency.pinned_blocks = {
      {BlockId(0, 2), 10 * kMiB}, {BlockId(0, 5), 20 * kMiB}, {BlockId(0, 6), 4 * kMiB}};
  residency.stats.pinned_bytes = 34 * kMiB;
  const policy::Trace sequence = Sequence();
  EXPECT_EQ(machine.Now(&residency, 0, sequence, {}, {}).machine.gpu_bytes, 76 * kMiB)
      << "block 2 is the iteration's";
  EXPECT_EQ(machine.Now(&residency, 0, sequence, {}, {}).machine.gpu_bytes, 76 * kMiB);
  EXPECT_EQ(residency.pinned_asked, 1) << "nothing has changed";
  EXPECT_EQ(machine.Now(&residency, 1, policy::Trace(), {}, {}).machine.gpu_bytes, 66 * kMiB)
      << "another sequence";
  residency.pinned_blocks = {{BlockId(0, 5), 120 * kMiB}};
  residency.stats.pinned_bytes = 120 * kMiB;
  EXPECT_EQ(machine.Now(&residency, 0, sequence, {}, {}).machine.gpu_bytes, 0u);
  residency.stats.pinned_bytes = 0;
  EXPECT_EQ(machine.Now(&residency, 0, sequence, {}, {}).machine.gpu_bytes, 100 * kMiB);
  EXPECT_EQ(residency.pinned_asked, 3);
}

}  // namespace
}  // namespace spillway::integration
