#include "integration/escape/pointer_tables.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::integration {
namespace {

using allocator::BlockId;
using allocator::PinReason;

constexpr uint64_t kTable = 0x10000;

class PointerTablesTest : public testing::Test {
 protected:
  // Words at `address` and behind it that lead to these blocks, each pinned once.
  bool Add(uint64_t address, const std::vector<uint32_t>& blocks,
           PinReason reason = PinReason::kPointerTable) {
    std::vector<TableEntry> entries;
    left_ = {{reason, {}}};
    for (size_t i = 0; i < blocks.size(); ++i) {
      entries.push_back({address + 8 * i, 8, BlockId(0, blocks[i])});
      left_[0].blocks.push_back({BlockId(0, blocks[i]), 1});
    }
    return tables_.Add(entries, &left_);
  }
  std::vector<uint32_t> Remove(uint64_t address, uint64_t bytes) {
    std::vector<PinTicket> ended;
    tables_.Remove(address, bytes, PointerTables::Change::kOverwritten, &ended);
    return BlocksOf(ended);
  }
  static std::vector<uint32_t> BlocksOf(const std::vector<PinTicket>& tickets) {
    std::vector<uint32_t> blocks;
    for (const PinTicket& ticket : tickets) {
      for (const allocator::PinnedBlock& block : ticket.blocks) blocks.push_back(block.id.index());
    }
    return blocks;
  }
  using Blocks = std::vector<uint32_t>;

  PointerTables tables_;
  std::vector<PinTicket> left_;
};

TEST_F(PointerTablesTest, TheLastWordOfATargetEndsItsPin) {
  EXPECT_TRUE(Add(kTable, {1, 2}));
  EXPECT_TRUE(Add(kTable + 64, {2}));
  EXPECT_EQ(BlocksOf(left_), Blocks{2})
      << "one pin of each target is kept, the second is for the caller to end";
  EXPECT_EQ(Remove(kTable, 16), Blocks{1});
  EXPECT_EQ(Remove(kTable + 71, 1), Blocks{2}) << "a word that is overwritten in part is gone";
  EXPECT_EQ(tables_.entries(), 0u);
}

TEST_F(PointerTablesTest, AsksNothingWhereNothingIsKnown) {
  EXPECT_FALSE(tables_.MayOverlap(kTable, 8));
  Add(kTable, {1});
  EXPECT_TRUE(tables_.MayOverlap(kTable, 8));
  EXPECT_FALSE(tables_.MayOverlap(kTable - 8, 8));
  Remove(kTable, 8);
  EXPECT_FALSE(tables_.MayOverlap(kTable, 8));
}

TEST_F(PointerTablesTest, ACopyMovesWholeWords) {
  Add(kTable, {1, 2});
  std::vector<TableEntry> moved;
  tables_.Moved(kTable + 4, 12, 0x20000, &moved);
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].address, 0x20004u);
  EXPECT_EQ(moved[0].target, BlockId(0, 2));
}

// Of a table that a kernel writes only the beginning is known.
TEST_F(PointerTablesTest, AKernelsTableEndsWithItsMemoryAlone) {
  std::vector<PinTicket> tickets = {{PinReason::kDenied, {{BlockId(0, 1), 1}}}};
  const std::vector<TableEntry> entries = {{kTable, 8, BlockId(0, 1), true}};
  EXPECT_TRUE(tables_.Add(entries, &tickets));
  tickets = {{PinReason::kDenied, {{BlockId(0, 1), 1}}}};
  EXPECT_TRUE(tables_.Add(entries, &tickets));
  EXPECT_EQ(tables_.entries(), 1u) << "the same launch again adds nothing";
  EXPECT_EQ(BlocksOf(tickets), Blocks{1});
  Add(kTable, {2});
  EXPECT_EQ(Remove(kTable, 64), Blocks{2}) << "a copy ends what copies wrote";
  std::vector<TableEntry> moved;
  tables_.Moved(kTable, 8, 0x20000, &moved);
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_TRUE(moved[0].by_kernel) << "nor is the length of a copy of it known";
  std::vector<PinTicket> ended;
  tables_.Remove(kTable, 8, PointerTables::Change::kGone, &ended);
  EXPECT_EQ(BlocksOf(ended), Blocks{1});
  EXPECT_EQ(tables_.entries(), 0u);
}

int listened = 0;

TEST_F(PointerTablesTest, TheFirstTableOfAKernelIsReportedOnce) {
  listened = 0;
  tables_.RecordKernelTable();
  tables_.SetKernelTableListener([] { ++listened; });
  tables_.RecordKernelTable();
  tables_.RecordKernelTable();
  EXPECT_EQ(listened, 1);
}

TEST_F(PointerTablesTest, GlobalsEndWithTheirModule) {
  const int module = 0;
  tables_.RecordGlobal(&module, kTable, 64);
  EXPECT_TRUE(tables_.IsGlobal(kTable + 63));
  EXPECT_FALSE(tables_.IsGlobal(kTable + 64));
  Add(kTable + 8, {1}, PinReason::kModuleGlobal);
  std::vector<PinTicket> ended;
  tables_.DropGlobals(&ended, &ended);  // another module
  EXPECT_TRUE(ended.empty());
  tables_.DropGlobals(&module, &ended);
  EXPECT_EQ(BlocksOf(ended), Blocks{1});
  EXPECT_FALSE(tables_.IsGlobal(kTable));
}

}  // namespace
}  // namespace spillway::integration
