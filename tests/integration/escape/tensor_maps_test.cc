#include "integration/escape/tensor_maps.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/fakes/test_map.h"

namespace spillway::integration {
namespace {

class TensorMapsTest : public testing::Test {
 protected:
  TensorMapsTest() : addresses_(MakeTestMap(1)) { PlaceBlocks(addresses_.get(), 0, 4); }
  uint64_t Address(uint32_t index) const { return BlockAddress(*addresses_, 0, index); }
  struct Content {
    explicit Content(uint64_t number) { std::memcpy(bytes, &number, sizeof(number)); }
    char bytes[TensorMaps::kBytes] = {};
  };

  const std::unique_ptr<allocator::AddressMap> addresses_;
  TensorMaps maps_;
};

TEST_F(TensorMapsTest, KnowsAMapByItsBytes) {
  EXPECT_FALSE(maps_.any());
  EXPECT_EQ(maps_.Find(Content(1).bytes).bytes, 0u);
  EXPECT_TRUE(maps_.Record(Content(1).bytes, {Address(2), 4096}, *addresses_));
  EXPECT_TRUE(maps_.any());
  EXPECT_EQ(maps_.Find(Content(1).bytes).address, Address(2));
  EXPECT_EQ(maps_.Find(Content(2).bytes).bytes, 0u);
  EXPECT_TRUE(maps_.Record(Content(1).bytes, {Address(3), 64}, *addresses_));
  EXPECT_EQ(maps_.Find(Content(1).bytes).address, Address(3)) << "encoded again";
}

TEST_F(TensorMapsTest, AScanFindsMapsAtTheirAlignment) {
  maps_.Record(Content(1).bytes, {Address(2), 4096}, *addresses_);
  char bytes[320] = {};
  std::memcpy(bytes + TensorMaps::kAlignment, Content(1).bytes, TensorMaps::kBytes);
  allocator::AccessSet set;
  maps_.Scan(bytes, sizeof(bytes), *addresses_, &set);
  ASSERT_EQ(set.size(), 1u);
  EXPECT_EQ(*set.begin(), allocator::BlockId(0, 3));
  set.Clear();
  maps_.Scan(bytes, TensorMaps::kAlignment + TensorMaps::kBytes - 1, *addresses_, &set);
  EXPECT_TRUE(set.empty()) << "cut off";
}

TEST_F(TensorMapsTest, APlaceIsTakenOnlyFromMapsThatNobodyUses) {
  uint64_t number = 0;
  while (number < 40'000 && maps_.Record(Content(number).bytes, {Address(2), 64}, *addresses_)) ++number;
  EXPECT_LT(number, 40'000u) << "far more than there are places for, all over a block in use";
  // Over free space of the reservation: they replace each other.
  TensorMaps unused;
  const uint64_t free_space = Address(1) - kTestChunk / 2;
  for (uint64_t i = 0; i < 40'000; ++i) {
    ASSERT_TRUE(unused.Record(Content(i).bytes, {free_space, 64}, *addresses_)) << i;
  }
}

}  // namespace
}  // namespace spillway::integration
