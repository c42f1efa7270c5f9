// Host memory that another process is due: the other is a second entry of the share, in this process.

#include "allocator/residency/transfer/demoter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/allocator/core_fixture.h"
#include "tests/allocator/motion_helpers.h"
#include "tests/fakes/faulty_engine.h"

namespace spillway::allocator {
namespace {

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
  // The pool sees it at once, not when it looks next.
  void StartOther(CoreDevice& device) {
    StartOther();
    device.host().AskFor(0);
  }
  bool OtherGetsItsPart() {
    return tests::WaitUntil([&] { return other_->Register(kShared / 2, kShared); });
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
  StartOther(device);
  ASSERT_TRUE(OtherGetsItsPart());
  EXPECT_LE(device.host().storage_capacity_bytes(), kShared / 2 - kStaging);
  EXPECT_GE(device->demoter()->demoted_bytes(), kStorage - (kShared / 2 - kStaging));
  EXPECT_TRUE(tests::WaitUntil([&] { return !device.host().gives_back(); }));
  ExpectRight(device, blocks);
  for (const CUdeviceptr block : blocks) ASSERT_TRUE(device->Free(block).ok());
  EXPECT_TRUE(tests::WaitUntil([&] { return device.disk()->stats().slots_in_use == 0; }));
  EXPECT_TRUE(tests::WaitUntil([&] { return device.host().storage_in_use() == 0; }));
  device->CheckInvariants();
}

TEST_F(DemoterTest, MemoryComesBackWhenTheOtherEnds) {
  CoreDevice device(setup_);
  Spilled(device, 4);
  StartOther(device);
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
  StartOther(device);
  for (int i = 0; i < 20; ++i) {
    device.host().AskFor(0);  // looks at what the other is due
    AwaitPolls(device, 1);
  }
  uint64_t promised;
  {
    const TableLock lock(device->core()->table);
    promised = device->charges()->figures(lock).promised_bytes;
  }
  EXPECT_GT(promised, kStorage / 2);
  EXPECT_GE(device.host().storage_capacity_bytes(), promised) << "live blocks have no other place";
  ExpectRight(device, blocks);
  for (const CUdeviceptr block : blocks) ASSERT_TRUE(device->Free(block).ok());
  EXPECT_TRUE(tests::WaitUntil([&] { return other_->Register(kStorage / 2, kStorage); }))
      << "now they are gone";
}

// The disk is full of what another GPU keeps and can do without.
TEST_F(DemoterTest, WithoutSlotsTheCopiesOfOtherDevicesAreAskedFor) {
  setup_.disk_cap_bytes = 32 * io::kSlotBytes;
  CoreDevice device(setup_);
  const std::vector<CUdeviceptr> blocks = Spilled(device, 4);
  const auto copies = device.disk()->ReserveSlots(32);
  ASSERT_TRUE(copies.ok()) << copies.status();
  StartOther(device);
  SharedCapacity* const capacity = device->charges()->capacity();
  ASSERT_TRUE(tests::WaitUntil([&] { return capacity->copies_asked() > 0; }));
  // Not at each poll, of which there is one in 10 ms now, but each half a second.
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t asked = capacity->copies_asked(), polls = device_polls;
  ASSERT_TRUE(tests::WaitUntil([&] { return device_polls >= polls + 12; }));
  const auto halves = (std::chrono::steady_clock::now() - begin) / std::chrono::milliseconds(500);
  EXPECT_LE(capacity->copies_asked() - asked, static_cast<uint64_t>(halves) + 1);
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
  for (int round = 0; round < 4; ++round) {
    StartOther(device);
    ASSERT_TRUE(tests::WaitUntil([&] {
      use_one();
      return other_->Register(kShared / 2, kShared);
    }));
    other_.reset();
    device.host().AskFor(0);
    ASSERT_TRUE(tests::WaitUntil([&] {
      use_one();
      return device.host().storage_capacity_bytes() == kStorage;
    }));
  }
  ExpectRight(device, blocks);
  device->CheckInvariants();
}

}  // namespace
}  // namespace spillway::allocator
