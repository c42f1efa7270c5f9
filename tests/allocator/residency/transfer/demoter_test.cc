// Host memory that another process is due: the other is a second entry of the share, in this process.

#include "allocator/residency/transfer/demoter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/allocator/core_fixture.h"
#include "tests/allocator/motion_helpers.h"
#include "tests/fakes/faulty_engine.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kChunk = CoreDevice::kChunk;

class DemoterTest : public testing::Test {
 protected:
  static constexpr uint64_t kStaging = 12 * kChunk;  // the fixture's, with a disk
  static constexpr uint64_t kStorage = 4 * kBlock;
  static constexpr uint64_t kShared = kStaging + kStorage;

  DemoterTest() : own_(Options()) {
    setup_.host_bytes = kStorage;
    setup_.share = &own_;
    setup_.shared_bytes = kShared;
  }
  static io::NodeShare::Options Options() {
    return {{"/proc"}, "demoter_test " + std::to_string(getpid()), 0, kChunk};
  }
  // Another process begins: half of everything is its part.
  void StartOther() { other_ = std::make_unique<io::NodeShare>(Options()); }
  bool WaitFor(const std::function<bool()>& what) {
    for (int i = 0; i < 10'000 && !what(); ++i) usleep(1000);
    return what();
  }
  bool OtherGetsItsPart() {
    return WaitFor([&] { return other_->Register(kShared / 2, kShared); });
  }
  // Blocks 1, 2, ... filled with their number, in host memory.
  std::vector<CUdeviceptr> Spilled(CoreDevice& device, int count) {
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(Filled(device, static_cast<uint64_t>(i) + 1));
    for (const CUdeviceptr block : blocks) {
      StartEviction(device, block);
      WaitForState(device, block, BlockState::kSpilled);
    }
    return blocks;
  }
  void ExpectRight(CoreDevice& device, const std::vector<CUdeviceptr>& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(Wrong(device, blocks[i], i + 1), 0u) << i;
  }

  io::NodeShare own_;
  std::unique_ptr<io::NodeShare> other_;
  CoreSetup setup_;
};

TEST_F(DemoterTest, BytesGoToTheDiskAndComeBack) {
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Spilled(device, 4);
  ASSERT_EQ(device.host().storage_in_use(), kStorage);
  StartOther();
  ASSERT_TRUE(OtherGetsItsPart());
  EXPECT_LE(device.host().storage_capacity_bytes(), kShared / 2 - kStaging);
  EXPECT_GE(device->demoter()->demoted_bytes(), kStorage - (kShared / 2 - kStaging));
  EXPECT_TRUE(WaitFor([&] { return !device.host().gives_back(); }));
  ExpectRight(device, blocks);
  for (const CUdeviceptr block : blocks) ASSERT_TRUE(device->Free(block).ok());
  EXPECT_TRUE(WaitFor([&] { return device.disk()->stats().slots_in_use == 0; }));
  EXPECT_TRUE(WaitFor([&] { return device.host().storage_in_use() == 0; }));
  device->CheckInvariants();
}

TEST_F(DemoterTest, MemoryComesBackWhenTheOtherEnds) {
  CoreDevice device(setup_);
  Spilled(device, 4);
  StartOther();
  ASSERT_TRUE(OtherGetsItsPart());
  other_.reset();
  EXPECT_TRUE(device.host().GrowStorageTo(kStorage).ok());
}

TEST_F(DemoterTest, WithoutADiskWhatIsPromisedStays) {
  setup_.disk = false;
  setup_.shared_bytes = kStorage;
  setup_.budget_bytes = 3 * kBlock;
  CoreDevice device(setup_);
  std::vector<CUdeviceptr> blocks;
  for (uint64_t i = 1; i <= 4; ++i) blocks.push_back(Filled(device, i));
  StartOther();
  usleep(1'200'000);
  uint64_t promised;
  {
    const TableLock lock(device->core()->table);
    promised = device->charges()->figures(lock).promised_bytes;
  }
  EXPECT_GT(promised, kStorage / 2);
  EXPECT_GE(device.host().storage_capacity_bytes(), promised) << "live blocks have no other place";
  ExpectRight(device, blocks);
  for (const CUdeviceptr block : blocks) ASSERT_TRUE(device->Free(block).ok());
  EXPECT_TRUE(WaitFor([&] { return other_->Register(kStorage / 2, kStorage); })) << "now they are gone";
}

// The disk is full of what another GPU keeps and can do without.
TEST_F(DemoterTest, WithoutSlotsTheCopiesOfOtherDevicesAreAskedFor) {
  setup_.disk_cap_bytes = 32 * io::kSlotBytes;
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Spilled(device, 4);
  const auto copies = device.disk()->ReserveSlots(32);
  ASSERT_TRUE(copies.ok()) << copies.status();
  StartOther();
  ASSERT_TRUE(WaitFor([&] { return device->charges()->capacity()->copies_asked() > 0; }));
  usleep(300'000);
  EXPECT_LT(device->charges()->capacity()->copies_asked(), 10u) << "not at each poll";
  for (const io::SlotId slot : *copies) device.disk()->ReleaseSlot(slot);
  EXPECT_TRUE(OtherGetsItsPart());
  ExpectRight(device, blocks);
}

// The process begins while the other has everything, and without a disk has no other place.
TEST_F(DemoterTest, WithoutADiskAllocationsGetWhatAnotherLeavesLater) {
  own_.Close();
  StartOther();
  ASSERT_TRUE(other_->Register(kShared, kShared));
  io::NodeShare late(Options());
  setup_.share = &late;
  setup_.disk = setup_.grow_at_once = setup_.grow_ahead = false;
  setup_.budget_bytes = 3 * kBlock;
  CoreDevice device(setup_);
  std::vector<CUdeviceptr> blocks;
  for (uint64_t i = 1; i <= 2; ++i) blocks.push_back(Filled(device, i));
  other_.reset();
  for (uint64_t i = 3; i <= 4; ++i) {
    const auto block = device->Allocate(kBlock, {});
    ASSERT_TRUE(block.ok()) << i << " " << block.status();
  }
  ExpectRight(device, blocks);
}

// Blocks that are used, freed and evicted all the time while memory leaves and comes back.
TEST_F(DemoterTest, NothingIsLostWhileBlocksAreInUse) {
  CoreDevice device(setup_);
  std::vector<CUdeviceptr> blocks = Spilled(device, 6);
  for (int round = 0; round < 6; ++round) {
    StartOther();
    for (int i = 0; i < 60; ++i) {
      const auto place = static_cast<size_t>(i * 7 + round) % blocks.size();
      ASSERT_EQ(Wrong(device, blocks[place], place + 1), 0u) << round << " " << i;
      if (i % 9 == 0) {
        ASSERT_TRUE(device->Free(blocks[place]).ok());
        blocks[place] = Filled(device, place + 1);
      }
      bool leave;
      {
        const TableLock lock(device->core()->table);
        const Block* const block = BlockAt(device, blocks[place]);
        leave = block->state == BlockState::kResident && block->eviction.job == nullptr && block->pins == 0;
        if (leave) device->evictor()->StartLocked(lock, {BlockAt(device, blocks[place])});
      }
      if (leave) device->thread()->Wake();
      usleep(5000);
    }
    other_.reset();
    usleep(100'000);
  }
  ExpectRight(device, blocks);
  device->CheckInvariants();
}

}  // namespace
}  // namespace spillway::allocator
