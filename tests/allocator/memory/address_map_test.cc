#include "allocator/memory/address_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "tests/allocator/core_fixture.h"
#include "tests/sizes.h"

namespace spillway::allocator {
namespace {

using testing::ElementsAre;

std::vector<BlockId> Blocks(const AccessSet& set) { return {set.begin(), set.end()}; }

class AddressMapTest : public testing::Test {
 protected:
  AddressMapTest() : map_(*AddressMap::Reserve(CoreDevice::Driver(), 2, 3 * kMiB, kChunk)) {}
  uint64_t At(int chunk) const { return map_->device_base(0) + chunk * kChunk; }

  std::unique_ptr<AddressMap> map_;
};

TEST_F(AddressMapTest, SlicesArePowersOfTwo) {
  EXPECT_EQ(map_->bytes_per_device(), 4 * kMiB);
  EXPECT_EQ(map_->total_bytes(), 8 * kMiB);
  EXPECT_EQ(map_->device_base(1), map_->base() + 4 * kMiB);
}

TEST_F(AddressMapTest, FindsBlocksByAnyByte) {
  map_->Assign(At(2), 3 * kChunk, BlockId(0, 7));
  EXPECT_EQ(map_->Find(At(2)), BlockId(0, 7));
  EXPECT_EQ(map_->Find(At(5) - 1), BlockId(0, 7));
  EXPECT_FALSE(map_->Find(At(5)).valid());
  EXPECT_FALSE(map_->Find(map_->base() - 1).valid());
  EXPECT_FALSE(map_->Find(map_->base() + map_->total_bytes()).valid());
  map_->Clear(At(2), 3 * kChunk);
  EXPECT_FALSE(map_->Find(At(3)).valid());
}

TEST_F(AddressMapTest, GuardChunkCountsForBothNeighbors) {
  map_->Assign(At(2), 2 * kChunk, BlockId(0, 1));
  map_->Assign(At(5), 1 * kChunk, BlockId(0, 2));
  AccessSet set;
  map_->Collect(At(4), &set);  // one past the end of the first
  EXPECT_THAT(Blocks(set), ElementsAre(BlockId(0, 1), BlockId(0, 2)));
  set.Clear();
  map_->Collect(At(1) + 8, &set);  // a negative offset from the first
  EXPECT_THAT(Blocks(set), ElementsAre(BlockId(0, 1)));
  set.Clear();
  map_->Collect(At(8), &set);
  map_->Collect(12345, &set);
  EXPECT_TRUE(set.empty());
}

TEST_F(AddressMapTest, CountsAddressesThatNameNoBlock) {
  map_->Assign(map_->base() + 4 * kChunk, kChunk, BlockId(0, 1));
  AccessSet set;
  for (const uint64_t chunk : {3, 4, 5, 7, 20}) map_->Collect(map_->base() + chunk * kChunk, &set);
  map_->Collect(map_->base() - 1, &set);
  map_->Collect(0x1234, &set);
  EXPECT_EQ(map_->unmatched(), 2u) << "chunks 7 and 20: neither a block nor beside one";
}

TEST_F(AddressMapTest, CollectsRangesClippedToTheReservation) {
  map_->Assign(At(0), 2 * kChunk, BlockId(0, 1));
  map_->Assign(At(3), 2 * kChunk, BlockId(0, 2));
  AccessSet set;
  map_->CollectRange(At(1), 3 * kChunk, &set);
  EXPECT_THAT(Blocks(set), ElementsAre(BlockId(0, 1), BlockId(0, 2)));
  set.Clear();
  map_->CollectRange(At(1), kChunk, &set);  // ends where the guard begins
  EXPECT_THAT(Blocks(set), ElementsAre(BlockId(0, 1)));
  set.Clear();
  map_->CollectRange(map_->base() - kMiB, 2 * kMiB, &set);
  EXPECT_THAT(Blocks(set), ElementsAre(BlockId(0, 1), BlockId(0, 2)));
  set.Clear();
  map_->CollectRange(At(0), 0, &set);
  map_->CollectRange(map_->base() - kMiB, kMiB, &set);
  EXPECT_TRUE(set.empty());
}

// ---- Where the map lies.

// What the driver under test was asked for, and what it gives.
struct Places {
  std::vector<uint64_t> free;  // hints that it takes
  std::vector<uint64_t> asked, given_back;
};
Places places;
constexpr uint64_t kDriversChoice = 0x302000000;

CudaDriver DriverWithPlaces(std::vector<uint64_t> free) {
  places = {std::move(free), {}, {}};
  CudaDriver driver;
  driver.cuMemAddressReserve = [](CUdeviceptr* start, size_t, size_t, CUdeviceptr hint, unsigned long long) {
    places.asked.push_back(hint);
    const bool takes = std::find(places.free.begin(), places.free.end(), hint) != places.free.end();
    *start = takes ? hint : kDriversChoice;
    return CUDA_SUCCESS;
  };
  driver.cuMemAddressFree = [](CUdeviceptr start, size_t) {
    places.given_back.push_back(start);
    return CUDA_SUCCESS;
  };
  return driver;
}

TEST(AddressMapPlaceTest, LiesAtTheFirstHintThatTheDriverTakes) {
  const CudaDriver driver = DriverWithPlaces({kAddressHints[1], kAddressHints[2]});
  const auto map = *AddressMap::Reserve(&driver, 1, kMiB, kChunk);
  EXPECT_EQ(map->base(), kAddressHints[1]);
  EXPECT_TRUE(map->at_hint());
  EXPECT_THAT(places.asked, ElementsAre(kAddressHints[0], kAddressHints[1]));
  EXPECT_THAT(places.given_back, ElementsAre(kDriversChoice)) << "what it gave instead of the first";
}

TEST(AddressMapPlaceTest, LiesWhereTheDriverChoosesWhenItTakesNoHint) {
  const CudaDriver driver = DriverWithPlaces({});
  const auto map = *AddressMap::Reserve(&driver, 1, kMiB, kChunk);
  EXPECT_EQ(map->base(), kDriversChoice);
  EXPECT_FALSE(map->at_hint());
  EXPECT_EQ(places.asked.size(), kAddressHints.size() + 1);
  EXPECT_EQ(places.asked.back(), 0u);
  EXPECT_EQ(places.given_back.size(), kAddressHints.size());
}

TEST(AddressMapPlaceTest, TheStandInTakesHintsUnlessItIsToIgnoreThem) {
  // Apart from what the fixture's device has.
  constexpr std::array<uint64_t, 1> kHint = {uint64_t{0x66} << 40};
  SetSimcuda("ADDRESS_HINTS", "ignore");
  EXPECT_FALSE((*AddressMap::Reserve(CoreDevice::Driver(), 1, kMiB, kChunk, kHint))->at_hint());
  SetSimcuda("ADDRESS_HINTS", "take");
}

}  // namespace
}  // namespace spillway::allocator
