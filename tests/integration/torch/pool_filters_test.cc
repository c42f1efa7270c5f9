#include "integration/torch/pool_filters.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

cudaStream_t Stream(uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

TEST(PoolFiltersTest, ClaimsWhatAnOpenPoolOfTheDeviceFilters) {
  PoolFilters filters;
  EXPECT_FALSE(filters.Claims(0, Stream(1)));
  filters.Begin(0, {0, 1}, [](cudaStream_t stream) { return stream == Stream(1); });
  filters.Begin(0, {0, 2}, [](cudaStream_t stream) { return stream == Stream(2); });
  EXPECT_TRUE(filters.Claims(0, Stream(1)));
  EXPECT_TRUE(filters.Claims(0, Stream(2)));
  EXPECT_FALSE(filters.Claims(0, Stream(3)));
  EXPECT_FALSE(filters.Claims(1, Stream(1))) << "another device";
  filters.End(1, {0, 1});
  EXPECT_TRUE(filters.Claims(0, Stream(1)));
  filters.End(0, {0, 1});
  EXPECT_FALSE(filters.Claims(0, Stream(1)));
  EXPECT_TRUE(filters.Claims(0, Stream(2)));
}

TEST(PoolFiltersTest, APoolIsNewOnceOnEachDevice) {
  PoolFilters filters;
  EXPECT_TRUE(filters.AddUser(0, {0, 1}));
  EXPECT_TRUE(filters.AddUser(1, {0, 1}));
  EXPECT_TRUE(filters.AddUser(0, {1, 0}));
  EXPECT_FALSE(filters.AddUser(0, {0, 1}));
  filters.RemoveUser(0, {0, 1});
  EXPECT_FALSE(filters.AddUser(0, {0, 1}));
  filters.RemoveUser(0, {0, 1});
  filters.RemoveUser(0, {0, 1});
  filters.RemoveUser(0, {0, 1});  // of a pool from before
  EXPECT_TRUE(filters.AddUser(0, {0, 1})) << "its number was given again";
}

// Native's filters may come back here.
TEST(PoolFiltersTest, AFilterMayOpenAndCloseOthers) {
  PoolFilters filters;
  filters.Begin(0, {0, 1}, [&filters](cudaStream_t) {
    filters.End(0, {0, 1});
    return true;
  });
  EXPECT_TRUE(filters.Claims(0, Stream(1)));
  EXPECT_FALSE(filters.Claims(0, Stream(1)));
}

}  // namespace
}  // namespace spillway::integration
