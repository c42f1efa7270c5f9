// Carrying plans out: what may be brought ahead, in which order, where what leaves goes, how far the host may
// run ahead, and what leaves for a launch that lacks memory.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "allocator/residency/plan/plan_throttle.h"
#include "allocator/residency/state/core.h"
#include "tests/allocator/copy_helpers.h"
#include "tests/allocator/residency/plan/plan_of.h"

namespace spillway::allocator {
namespace {

using policy::MigrationPlan;
using policy::PlanOp;
using policy::PlanOpKind;
using policy::PlanTier;

// Seven blocks fit the device.

class PlanRunnerTest : public testing::Test {
 protected:
  static CoreSetup Setup(uint64_t host_bytes, bool disk = true) {
    CoreSetup setup;
    setup.host_bytes = host_bytes;
    setup.disk = disk;
    return setup;
  }
  // A plan of so many launches from the next one on, in which all blocks fit at every one.
  void Begin(CoreDevice& device, uint32_t launches) {
    plan_ = PlanOf(std::vector<policy::Nanos>(launches, 1'000'000), device->Stats().launches);
    plan_->budget_bytes = 7 * kBlock;
    plan_->expected_bytes.assign(launches, 0);
    uses_.assign(launches, {});
  }
  uint32_t RawOf(CoreDevice& device, CUdeviceptr address) { return device.addresses().Find(address).raw(); }
  void Use(CoreDevice& device, uint32_t position, CUdeviceptr address) {
    uses_[position].push_back(RawOf(device, address));
  }
  void Drop(CoreDevice& device, CUdeviceptr address, uint32_t after, PlanTier tier) {
    PlanOp op;
    op.kind = PlanOpKind::kDrop;
    op.tier = tier;
    op.launch = after;
    op.block = RawOf(device, address);
    plan_->ops.push_back(op);
  }
  void Fetch(CoreDevice& device, CUdeviceptr address, uint32_t from, uint32_t needed) {
    PlanOp op;
    op.launch = from;
    op.needed = needed;
    op.block = RawOf(device, address);
    plan_->ops.push_back(op);
    Use(device, needed, address);
  }
  void Set(CoreDevice& device) {
    for (uint32_t position = 0; position < plan_->iteration_launches; ++position) {
      plan_->launches[position] = {static_cast<uint32_t>(plan_->uses.size()),
                                   static_cast<uint32_t>(uses_[position].size())};
      for (uint32_t block : uses_[position]) plan_->uses.push_back(block);
    }
    device->SetPlan(plan_);
  }
  // A launch that leaves the block as it is.
  void Read(CoreDevice& device, CUdeviceptr address) {
    ASSERT_EQ(device.Launch(nullptr, {address}, [](const auto&) {}), CUDA_SUCCESS);
  }
  void SpillTo(CoreDevice& device, CUdeviceptr address) {
    StartEviction(device, address);
    WaitForState(device, address, BlockState::kSpilled);
  }

  std::shared_ptr<MigrationPlan> plan_;
  std::vector<std::vector<uint32_t>> uses_;
};

TEST_F(PlanRunnerTest, AFetchWaitsForItsHeadroomAndDelaysItsOwnQueueOnly) {
  CoreDevice device(Setup(kBlock));
  const CUdeviceptr early = Filled(device, 1), on_host = Filled(device, 2), on_disk = Filled(device, 3);
  SpillTo(device, on_host);  // takes all of the host tier
  SpillTo(device, on_disk);
  Begin(device, 6);
  plan_->expected_bytes[2] = static_cast<int64_t>(plan_->budget_bytes);
  Use(device, 0, early);
  Use(device, 1, early);
  Use(device, 2, early);
  Fetch(device, on_host, 0, 4);  // launch 2 leaves it no headroom
  Fetch(device, on_disk, 0, 1);
  Set(device);
  WaitForState(device, on_disk, BlockState::kResident);
  EXPECT_EQ(StateOf(device, on_host), BlockState::kSpilled);
  for (int launch = 0; launch < 3; ++launch) Read(device, early);
  device.Synchronize();
  WaitForState(device, on_host, BlockState::kResident);
  EXPECT_EQ(device->Stats().faults, 0u);
  EXPECT_EQ(Wrong(device, on_host, 2) + Wrong(device, on_disk, 3), 0u);
}

TEST_F(PlanRunnerTest, WhatIsNeededFirstComesFirst) {
  CoreDevice device(Setup(0));
  const CUdeviceptr now = Filled(device, 1), late = Filled(device, 2), soon = Filled(device, 3);
  SpillTo(device, late);
  SpillTo(device, soon);
  Begin(device, 6);
  plan_->budget_bytes = kBlock;  // for one of them at a time
  Use(device, 0, now);
  Fetch(device, late, 0, 4);
  Fetch(device, soon, 0, 2);
  Set(device);
  WaitForState(device, soon, BlockState::kResident);
  EXPECT_EQ(StateOf(device, late), BlockState::kSpilled);
  for (int launch = 0; launch < 2; ++launch) Read(device, now);
  device.Synchronize();
  WaitForState(device, late, BlockState::kResident);
  EXPECT_EQ(Wrong(device, late, 2) + Wrong(device, soon, 3), 0u);
}

TEST_F(PlanRunnerTest, HintsFetchIntoWhatIsFreeBeyondTheReserve) {
  CoreSetup setup = Setup(4 * kBlock);
  setup.free_reserve_bytes = 2 * kBlock;
  CoreDevice device(setup);
  const CUdeviceptr first = Filled(device, 1), second = Filled(device, 2);
  std::vector<CUdeviceptr> others;
  for (int i = 0; i < 4; ++i) others.push_back(Filled(device, 3 + i));
  SpillTo(device, first);
  SpillTo(device, second);  // three blocks are free
  Begin(device, 6);
  Use(device, 0, others[0]);
  Fetch(device, first, 0, 4);
  Fetch(device, second, 0, 5);
  plan_->budget_bytes = 100 * kBlock;
  plan_->hints = true;
  Set(device);
  WaitForState(device, first, BlockState::kResident);
  Read(device, others[0]);
  device.Synchronize();
  EXPECT_EQ(StateOf(device, second), BlockState::kSpilled) << "two blocks are the reserve";
  EXPECT_EQ(Wrong(device, first, 1) + Wrong(device, second, 2), 0u);
}

TEST_F(PlanRunnerTest, BlocksGoToTheTierOfThePlan) {
  CoreDevice device(Setup(2 * kBlock));
  const CUdeviceptr to_disk = Filled(device, 1), to_host = Filled(device, 2);
  Begin(device, 4);
  Use(device, 0, to_disk);
  Use(device, 1, to_host);
  Drop(device, to_disk, 0, PlanTier::kDisk);
  Drop(device, to_host, 1, PlanTier::kHost);
  Set(device);
  Read(device, to_disk);
  WaitForState(device, to_disk, BlockState::kSpilled);
  EXPECT_EQ(device->Stats().disk_tier_bytes, kBlock);
  EXPECT_EQ(device->Stats().host_tier_bytes, 0u) << "though it had capacity";
  Read(device, to_host);
  WaitForState(device, to_host, BlockState::kSpilled);
  EXPECT_EQ(device->Stats().host_tier_bytes, kBlock);
  device->SetPlan(nullptr);
  EXPECT_EQ(Wrong(device, to_disk, 1) + Wrong(device, to_host, 2), 0u);
}

TEST_F(PlanRunnerTest, AFullTierGivesWayToTheOther) {
  CoreDevice device(Setup(kBlock, /*disk=*/false));
  const CUdeviceptr block = Filled(device, 1);
  Begin(device, 2);
  Use(device, 0, block);
  Drop(device, block, 0, PlanTier::kDisk);
  Set(device);
  Read(device, block);
  WaitForState(device, block, BlockState::kSpilled);
  EXPECT_EQ(device->Stats().host_tier_bytes, kBlock);
  device->SetPlan(nullptr);
  EXPECT_EQ(Wrong(device, block, 1), 0u);
}

// The GPU stands still, so that the plan's own eviction cannot begin.
TEST_F(PlanRunnerTest, ALaunchWithoutHeadroomTakesAVictimThoughThePlanWillFreeSome) {
  CoreDevice device(Setup(8 * kBlock));
  std::vector<CUdeviceptr> blocks;
  for (uint64_t i = 0; i < 7; ++i) blocks.push_back(Filled(device, i + 1));
  const CUdeviceptr more = device.MustAllocate(kBlock);
  Begin(device, 16);
  Use(device, 0, blocks[6]);
  Use(device, 1, more);
  for (int i = 0; i < 6; ++i) Use(device, 2 + i, blocks[i]);
  Drop(device, blocks[6], 0, PlanTier::kHost);
  Set(device);
  PauseStreams(true);
  Read(device, blocks[6]);
  std::thread launches([&] { Read(device, more); });
  EXPECT_TRUE(tests::WaitUntil([&] { return StateOf(device, blocks[5]) != BlockState::kResident; }))
      << "the farthest next use";
  EXPECT_EQ(StateOf(device, blocks[4]), BlockState::kResident);
  PauseStreams(false);
  launches.join();
  device.Synchronize();
  device->SetPlan(nullptr);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(Wrong(device, blocks[i], i + 1), 0u) << i;
}

TEST_F(PlanRunnerTest, WhereThePlanLeavesNoHeadroomAVictimIsTakenAndComesBack) {
  CoreDevice device(Setup(8 * kBlock));
  std::vector<CUdeviceptr> blocks;
  for (uint64_t i = 0; i < 7; ++i) blocks.push_back(Filled(device, i + 1));
  const CUdeviceptr more = device.MustAllocate(kBlock);
  Begin(device, 16);
  plan_->budget_bytes = 16 * kBlock;  // it is wrong
  Use(device, 0, more);
  for (int i = 0; i < 7; ++i) Use(device, 2 + i, blocks[i]);
  Set(device);
  Read(device, more);
  device.Synchronize();
  EXPECT_EQ(StateOf(device, blocks[6]), BlockState::kSpilled) << "the farthest next use";
  ASSERT_TRUE(device->Free(more).ok());
  // There is headroom again for what the plan says is needed next.
  WaitForState(device, blocks[6], BlockState::kResident);
  EXPECT_EQ(device->Stats().faults, 0u);
  EXPECT_EQ(Wrong(device, blocks[6], 7), 0u);
}

// The gap of 8 ms suffices for the copy at the link's rate out, and not at what is left of it beside a fetch.
TEST_F(PlanRunnerTest, ACopyOutBesideFetchesIsTakenToGoAtTheRateOfBoth) {
  FixedHashCode code;
  CoreSetup setup = Setup(4 << 20);
  setup.hash_code = &code;
  CoreDevice device(setup);
  AwaitHash(device);
  const CUdeviceptr copied = Filled(device, 1), other = Filled(device, 2);
  LinkMeter& link = device->core()->link;
  link.SetMeasured({1e9, 1e9}, {1e9, 5e7});
  link.Begin(LinkDirection::kIn, 1000);
  Begin(device, 10);
  for (const uint32_t position : {0, 9}) Use(device, position, copied);
  Use(device, 1, other);
  PlanOp copy;
  copy.kind = PlanOpKind::kCopyOut;
  copy.tier = PlanTier::kHost;
  copy.needed = 8;
  copy.block = RawOf(device, copied);
  plan_->ops.push_back(copy);
  Set(device);
  Read(device, copied);
  Read(device, other);
  device.Synchronize();
  AwaitPolls(device, 50);
  EXPECT_EQ(device->Stats().early_copies, 0u);
  link.End(LinkDirection::kIn, 0, 2000);
  EXPECT_TRUE(tests::WaitUntil([&] {
    device->thread()->Wake();
    return device->Stats().early_copies == 1;
  }));
}

TEST_F(PlanRunnerTest, TheHostStaysNearTheGpuWhileAPlanIsInForce) {
  CoreDevice device(Setup(2 * kBlock));
  const CUdeviceptr away = Filled(device, 1), block = Filled(device, 2);
  SpillTo(device, away);
  device->core()->pressure.store(true);
  Begin(device, 8);
  plan_->durations.assign(8, 5'000'000);
  for (uint32_t i = 0; i < 8; ++i) Use(device, i, block);
  Drop(device, away, 0, PlanTier::kHost);  // a plan without ops holds nobody
  Set(device);
  std::atomic<uint64_t> done{0};
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(device.Launch(nullptr, {block}, [&](const auto&) { ++done; }), CUDA_SUCCESS);
    EXPECT_GE(done.load() + policy::RunAhead().launches, i);
  }
  device.Synchronize();
  EXPECT_EQ(done.load(), 40u);
}

// A collective, say, which waits for another rank: the other streams go on, and so does the plan.
TEST_F(PlanRunnerTest, ALongLaunchOnAnotherStreamHoldsNeitherTheHostNorThePlan) {
  CoreDevice device(Setup(2 * kBlock));
  const CUdeviceptr away = Filled(device, 1), block = Filled(device, 2), sent = Filled(device, 3);
  SpillTo(device, away);
  device->core()->pressure.store(true);
  const CUstream other = device.NewStream();
  Begin(device, 64);
  plan_->durations.assign(64, 500'000);
  plan_->expected_bytes.clear();  // else what is away comes back at once
  for (uint32_t i = 1; i < 60; ++i) Use(device, i, block);
  Fetch(device, away, 40, 60);
  Set(device);
  std::atomic<bool> released{false}, gave_up{false};
  const auto long_launch = [&](const auto&) { gave_up = !tests::WaitUntil([&] { return released.load(); }); };
  ASSERT_EQ(device.Launch(other, {sent}, long_launch), CUDA_SUCCESS);
  for (int i = 1; i < 50; ++i) Read(device, block);
  WaitForState(device, away, BlockState::kResident);
  EXPECT_FALSE(gave_up.load());
  released = true;
  device.Synchronize();
  EXPECT_EQ(Wrong(device, away, 1), 0u);
}

}  // namespace
}  // namespace spillway::allocator
