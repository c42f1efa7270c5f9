// Every pair of states, against the diagram of docs/states.md written out once more by hand. And records that
// serve one address after another.

#include "allocator/residency/state/block_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

using enum BlockState;

const std::set<std::pair<BlockState, BlockState>> kMoves = {
    {kFree, kEmpty},      // handed out
    {kEmpty, kResident},  // first launch
    {kEmpty, kFree},      // freed unused
    {kResident, kEvicting}, {kResident, kEmpty},
    {kResident, kCached},  // out, decommitted, freed
    {kEvicting, kSpilled},  {kEvicting, kResident},
    {kEvicting, kCached},   {kEvicting, kFree},
    {kSpilled, kFaulting},  {kSpilled, kFree},
    {kFaulting, kResident}, {kFaulting, kSpilled},
    {kFaulting, kCached},   {kCached, kResident},
    {kCached, kFree},       {kSpilled, kEmpty},  // a pause drops what need not be kept
};

TEST(BlockStateTest, AllowsTheMovesOfTheDiagramAndNoOthers) {
  for (int from = 0; from < kBlockStates; ++from) {
    for (int to = 0; to < kBlockStates; ++to) {
      const auto a = static_cast<BlockState>(from);
      const auto b = static_cast<BlockState>(to);
      EXPECT_EQ(CanTransition(a, b), kMoves.count({a, b}) == 1) << NameOf(a) << " -> " << NameOf(b);
    }
  }
}

TEST(BlockStateTest, NamesAreThoseOfTheEnum) {
  EXPECT_STREQ(NameOf(kFree), "kFree");
  EXPECT_STREQ(NameOf(kCached), "kCached");
  std::set<std::string> names;
  for (int i = 0; i < kBlockStates; ++i) names.insert(NameOf(static_cast<BlockState>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kBlockStates));
}

// What is known of an address is not known of the next one.
TEST(BlockTableTest, ARecordForgetsItsLastAddress) {
  const auto addresses = *AddressMap::Reserve(CoreDevice::Driver(), 1, uint64_t{1} << 30, CoreDevice::kChunk);
  BlockTable table(0, addresses.get());
  const TableLock lock(table);
  Block* const block = table.CreateLocked(lock, addresses->device_base(0), 1);
  block->copies.written_unseen = true;
  block->copies.backoff.RecordUseless();
  table.DestroyLocked(lock, block);
  Block* const next = table.CreateLocked(lock, addresses->device_base(0) + 8 * CoreDevice::kChunk, 1);
  ASSERT_EQ(next, block);
  EXPECT_FALSE(next->copies.written_unseen);
  EXPECT_TRUE(next->copies.backoff.WantsHash());
}

}  // namespace
}  // namespace spillway::allocator
