#include "integration/torch/device_ledger.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace spillway::integration {
namespace {

using Stats = DeviceLedger::Stats;

void* At(uintptr_t address) { return reinterpret_cast<void*>(address); }

LedgerBlock BlockOf(size_t bytes, void* stream = nullptr) {
  return {bytes, DeviceLedger::CountedBytes(bytes), stream, nullptr};
}

class DeviceLedgerTest : public ::testing::Test {
 protected:
  void Add(uintptr_t address, size_t bytes) {
    ledger_.Add(
        At(address), BlockOf(bytes),
        [this] {
          ++asked_;
          return Stats();
        },
        0, 0);
  }

  DeviceLedger ledger_;
  int asked_ = 0;  // for native's statistics
};

TEST_F(DeviceLedgerTest, KnowsABlockFromItsAdditionToItsRemoval) {
  EXPECT_FALSE(ledger_.used());
  Add(0x1000, 1000);
  EXPECT_TRUE(ledger_.used());
  ASSERT_TRUE(ledger_.Find(At(0x1000)).has_value());
  EXPECT_EQ(ledger_.Find(At(0x1000))->counted, 1024u);
  EXPECT_FALSE(ledger_.Find(At(0x1001)).has_value());
  EXPECT_EQ(ledger_.allocated_bytes(), 1024u);
  EXPECT_EQ(ledger_.Remove(At(0x1000))->requested, 1000u);
  EXPECT_FALSE(ledger_.Remove(At(0x1000)).has_value()) << "only once";
  EXPECT_EQ(ledger_.allocated_bytes(), 0u);
  EXPECT_TRUE(ledger_.used());
}

TEST_F(DeviceLedgerTest, AsksNativeOnlyForANewPeak) {
  Add(0x1000, 1 << 20);
  EXPECT_EQ(asked_, 1);
  for (int i = 0; i < 5; ++i) {
    ledger_.Remove(At(0x1000));
    Add(0x1000, 1 << 20);
  }
  EXPECT_EQ(asked_, 1);
  Add(0x200000, 1 << 20);
  EXPECT_EQ(asked_, 2);
}

TEST_F(DeviceLedgerTest, ASnapshotHasASegmentForEachBlockByAddress) {
  Add(0x9000, 600);
  Add(0x1000, 1000);
  std::vector<c10::CachingDeviceAllocator::SegmentInfo> segments(1);  // one of native's stays in front
  ledger_.AppendSegments(2, &segments);
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[1].address, 0x1000u);
  EXPECT_EQ(segments[2].address, 0x9000u);
  EXPECT_EQ(segments[1].device, 2);
  EXPECT_EQ(segments[1].total_size, 1024u);
  EXPECT_EQ(segments[1].requested_size, 1000u);
  ASSERT_EQ(segments[1].blocks.size(), 1u);
  EXPECT_TRUE(segments[1].blocks[0].allocated);
}

TEST_F(DeviceLedgerTest, RemembersThePhysicalBytesLastTold) {
  ledger_.Merge({}, 4096, 8192);
  EXPECT_EQ(ledger_.reserved_bytes(), 4096u);
}

}  // namespace
}  // namespace spillway::integration
