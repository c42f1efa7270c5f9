#include "integration/torch/device_stats_merge.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using c10::CachingAllocator::StatType;
using Stats = DeviceStatsMerge::Stats;

constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
constexpr auto kLarge = static_cast<size_t>(StatType::LARGE_POOL);
constexpr auto kSmall = static_cast<size_t>(StatType::SMALL_POOL);

// Native as it is with so many bytes in small blocks.
Stats NativeWith(size_t bytes) {
  Stats native;
  for (const size_t type : {kAll, kSmall}) {
    native.allocated_bytes[type].increase(bytes);
    native.allocation[type].increase(1);
  }
  return native;
}

TEST(DeviceStatsMergeTest, OurBlocksCountAsLargeOnes) {
  DeviceStatsMerge merge;
  merge.OnAllocate(1000, 1024);
  merge.OnAllocate(2000, 2048);
  merge.OnFree(1000, 1024);
  merge.SetReserved(4096, 4096);
  const Stats stats = merge.Merge(NativeWith(512));
  EXPECT_EQ(stats.allocated_bytes[kAll].current, 2048 + 512);
  EXPECT_EQ(stats.allocated_bytes[kLarge].current, 2048);
  EXPECT_EQ(stats.allocated_bytes[kSmall].current, 512);
  EXPECT_EQ(stats.requested_bytes[kAll].current, 2000);
  EXPECT_EQ(stats.allocation[kAll].current, 2);
  EXPECT_EQ(stats.allocation[kLarge].allocated, 2);
  EXPECT_EQ(stats.reserved_bytes[kAll].current, 4096);
}

// Ours peak at 3000 with native at 0, native at 500 with ours at 1000: the common peak is neither sum of the
// two.
TEST(DeviceStatsMergeTest, CommonPeaksAreOfOneMoment) {
  DeviceStatsMerge merge;
  merge.OnAllocate(3000, 3000);
  merge.RecordPeaks(NativeWith(0), merge.native_total());
  merge.OnFree(3000, 3000);
  merge.OnAllocate(1000, 1000);
  const Stats stats = merge.Merge(NativeWith(500));
  EXPECT_EQ(stats.allocated_bytes[kAll].current, 1500);
  EXPECT_EQ(stats.allocated_bytes[kAll].peak, 3000);
}

TEST(DeviceStatsMergeTest, NativeIsAskedOnlyWhenAPeakMayHaveRisen) {
  DeviceStatsMerge merge;
  merge.OnAllocate(1 << 20, 1 << 20);
  EXPECT_TRUE(merge.PeaksMayHaveRisen());
  merge.RecordPeaks(NativeWith(0), merge.native_total());
  EXPECT_FALSE(merge.PeaksMayHaveRisen());
  merge.OnFree(1 << 20, 1 << 20);
  merge.OnNative(4096);  // small beside what was freed
  EXPECT_FALSE(merge.PeaksMayHaveRisen());
  merge.OnNative(1 << 20);  // native takes such blocks from segments of any size
  EXPECT_TRUE(merge.PeaksMayHaveRisen());
}

TEST(DeviceStatsMergeTest, ResetsForgetWhatWas) {
  DeviceStatsMerge merge;
  merge.OnAllocate(3000, 3000);
  merge.RecordPeaks(NativeWith(0), merge.native_total());
  merge.OnFree(3000, 3000);
  merge.OnRetry();
  merge.OnOutOfMemory();
  merge.OnOutOfMemory();
  EXPECT_EQ(merge.Merge({}).num_alloc_retries, 1);
  EXPECT_EQ(merge.Merge({}).num_ooms, 2);
  merge.ResetPeaks({});
  merge.ResetAccumulated();
  const Stats stats = merge.Merge({});
  EXPECT_EQ(stats.allocated_bytes[kAll].peak, 0);
  EXPECT_EQ(stats.allocated_bytes[kAll].allocated, 0);
  EXPECT_EQ(stats.num_alloc_retries, 0);
  EXPECT_EQ(stats.num_ooms, 0);
}

}  // namespace
}  // namespace spillway::integration
