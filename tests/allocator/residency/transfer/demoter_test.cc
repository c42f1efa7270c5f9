// Blocks that have been spilled for long, in a host tier that is full.

#include "allocator/residency/transfer/demoter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "tests/allocator/core_fixture.h"
#include "tests/allocator/motion_helpers.h"
#include "tests/allocator/residency/pause_helpers.h"
#include "tests/allocator/residency/plan/plan_of.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {
namespace {

class DemoterTest : public testing::Test {
 protected:
  static constexpr uint64_t kStorage = 4 * kBlock;
  static constexpr uint64_t kFreed = 2 * (kStorage / kChunk / 16) * kChunk;  // it ends when so much is free

  DemoterTest() {
    setup_.host_bytes = kStorage;
    setup_.idle_nanos = 1'000'000;
  }
  // Blocks 1, 2, ... filled with their number, off the GPU.
  std::vector<CUdeviceptr> Spilled(CoreDevice& device, int count) {
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(Filled(device, static_cast<uint64_t>(i) + 1));
    for (const CUdeviceptr block : blocks) {
      StartEviction(device, block);
      WaitForState(device, block, BlockState::kSpilled);
    }
    return blocks;
  }
  // If it may leave now.
  void SendAway(CoreDevice& device, CUdeviceptr address) {
    {
      const TableLock lock(device->core()->table);
      Block* const block = BlockAt(device, address);
      if (block->state != BlockState::kResident || block->eviction.job != nullptr || block->pins != 0) return;
      device->evictor()->StartLocked(lock, {block});
    }
    device->thread()->Wake();
  }
  // The device's thread looks at it when something else happens, too.
  bool HostComesFree(CoreDevice& device) {
    return tests::WaitUntil([&] {
      device->thread()->Wake();
      return device.host().storage_in_use() <= kStorage - kFreed;
    });
  }
  void ExpectRight(CoreDevice& device, const std::vector<CUdeviceptr>& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(Wrong(device, blocks[i], i + 1), 0u) << i;
  }

  CoreSetup setup_;
};

TEST_F(DemoterTest, BytesGoToTheDiskAndComeBack) {
  static_assert(kFreed > 0);
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Spilled(device, 4);
  ASSERT_TRUE(HostComesFree(device));
  EXPECT_EQ(device->Stats().demoted_bytes, kFreed) << "no more than is wanted";
  ExpectRight(device, blocks);
  for (const CUdeviceptr block : blocks) ASSERT_TRUE(device->Free(block).ok());
  EXPECT_TRUE(tests::WaitUntil([&] { return device.disk()->stats().slots_in_use == 0; }));
  EXPECT_TRUE(tests::WaitUntil([&] { return device.host().storage_in_use() == 0; }));
  device->CheckInvariants();
}

TEST_F(DemoterTest, WhatLeftLatelyStays) {
  setup_.idle_nanos = 3'600'000'000'000;
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Spilled(device, 4);
  AwaitPolls(device, 20);
  EXPECT_EQ(device->Stats().demoted_bytes, 0u);
  EXPECT_EQ(device.host().storage_in_use(), kStorage);
  ExpectRight(device, blocks);
}

// An iteration may last for longer than blocks have to be idle.
TEST_F(DemoterTest, WhatThePlanUsesAgainStays) {
  CoreDevice device(setup_);
  std::vector<CUdeviceptr> blocks;
  for (uint64_t i = 1; i <= 4; ++i) blocks.push_back(Filled(device, i));
  const auto plan = PlanOf({1'000'000, 1'000'000}, device->Stats().launches);
  plan->uses.push_back(device.addresses().Find(blocks[0]).raw());
  plan->launches[1] = {0, 1};
  device->SetPlan(plan);
  AwaitPolls(device, 5);
  for (const CUdeviceptr block : blocks) {
    StartEviction(device, block);
    WaitForState(device, block, BlockState::kSpilled);
  }
  ASSERT_TRUE(HostComesFree(device));
  const auto on_disk = [&](CUdeviceptr block) {
    const TableLock lock(device->core()->table);
    return std::ranges::count_if(BlockAt(device, block)->copies.homes, &ExtentHome::on_disk);
  };
  EXPECT_EQ(on_disk(blocks[0]), 0) << "it left first";
  EXPECT_GT(on_disk(blocks[1]), 0);
  ExpectRight(device, blocks);
}

// A plan uses nothing that is paused before its resume, which may be hours away.
TEST_F(DemoterTest, WhatIsPausedGoesOnThoughThePlanUsesIt) {
  CoreDevice device(setup_);
  std::vector<CUdeviceptr> blocks;
  for (uint64_t i = 1; i <= 4; ++i) blocks.push_back(Filled(device, i));
  const auto plan = PlanOf({1'000'000, 1'000'000}, device->Stats().launches);
  for (size_t i = 0; i < blocks.size(); ++i) plan->uses.push_back(device.addresses().Find(blocks[i]).raw());
  plan->launches[1] = {0, static_cast<uint32_t>(blocks.size())};
  device->SetPlan(plan);
  AwaitPolls(device, 5);
  Pause(device);
  EXPECT_TRUE(HostComesFree(device));
  Resume(device);
  ExpectRight(device, blocks);
}

TEST_F(DemoterTest, NothingLeavesWhileHostMemoryIsFree) {
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Spilled(device, 3);
  AwaitPolls(device, 20);
  EXPECT_EQ(device->Stats().demoted_bytes, 0u);
  ExpectRight(device, blocks);
}

TEST_F(DemoterTest, WithoutSlotsEverythingStaysAsItIs) {
  setup_.disk_cap_bytes = 32 * io::kSlotBytes;
  CoreDevice device(setup_);
  const auto others = device.disk()->ReserveSlots(32);
  ASSERT_TRUE(others.ok()) << others.status();
  const std::vector<CUdeviceptr> blocks = Spilled(device, 4);
  AwaitPolls(device, 20);
  EXPECT_EQ(device->Stats().demoted_bytes, 0u);
  ExpectRight(device, blocks);
  for (const io::SlotId slot : *others) device.disk()->ReleaseSlot(slot);
}

// Blocks that are used, freed and evicted all the time while bytes leave host memory.
TEST_F(DemoterTest, NothingIsLostWhileBlocksAreInUse) {
  CoreDevice device(setup_);
  std::vector<CUdeviceptr> blocks = Spilled(device, 6);
  int uses = 0;
  const auto use_one = [&] {
    const auto place = static_cast<size_t>(uses * 7) % blocks.size();
    EXPECT_EQ(Wrong(device, blocks[place], place + 1), 0u) << uses;
    if (uses++ % 9 == 0) {
      EXPECT_TRUE(device->Free(blocks[place]).ok());
      blocks[place] = Filled(device, place + 1);
    }
    SendAway(device, blocks[place]);
  };
  ASSERT_TRUE(tests::WaitUntil([&] {
    use_one();
    return uses > 200 && device->Stats().demoted_bytes >= 4 * kFreed;
  }));
  ExpectRight(device, blocks);
  device->CheckInvariants();
}

}  // namespace
}  // namespace spillway::allocator
