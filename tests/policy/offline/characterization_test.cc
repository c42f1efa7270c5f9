#include "policy/offline/characterization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

using ::testing::ElementsAre;

// Kernels 0 and 11 use tensor 0, 5 and 6 tensor 1, of 200 MB at the peak: four of twelve kernels use a half.
TEST(CharacterizationTest, ActivePartIsWhatOneKernelNames) {
  Workload workload = MountainWorkload();
  Characterization result = Characterize(workload, 1e9);
  EXPECT_EQ(result.peak_live_bytes, 200 * kMega);
  EXPECT_DOUBLE_EQ(result.active.by_kernel, 4 * 0.5 / 12);
  EXPECT_DOUBLE_EQ(result.active.by_time, 4 * 0.5 / 12);
  EXPECT_DOUBLE_EQ(result.active.most, 0.5);
  workload.kernels[0].duration = 130 * kMilli;  // 240 ms in all, of which 160 use a half
  result = Characterize(workload, 1e9);
  EXPECT_DOUBLE_EQ(result.active.by_kernel, 4 * 0.5 / 12);
  EXPECT_DOUBLE_EQ(result.active.by_time, 0.5 * 160 / 240);
}

TEST(CharacterizationTest, WorkspaceIsActiveAndWhatIsReadAndWrittenCountsOnce) {
  Workload workload;
  workload.tensors = {{30, true}, {70, true}};
  workload.kernels = {{"a", kMilli, {0}, {0}, 0}, {"b", kMilli, {1}, {}, 100}};
  const Characterization result = Characterize(workload, 1e9);
  EXPECT_EQ(result.peak_live_bytes, 200u);
  EXPECT_DOUBLE_EQ(result.active.by_kernel, (30.0 + 170.0) / 200 / 2);
  EXPECT_DOUBLE_EQ(result.active.most, 170.0 / 200);
}

// Idle from the end of kernel 0 to the start of kernel 11: 100 ms, in which 50 MB leave and return at 1e9
// B/s.
TEST(CharacterizationTest, IdleTimesAreCountedByTheirLengthAndByWhetherTheyHideAMove) {
  const Workload workload = MountainWorkload();
  Characterization result = Characterize(workload, 1e9);
  EXPECT_EQ(result.all.tensors, 2u);
  EXPECT_EQ(result.all.bytes, 200 * kMega);
  EXPECT_EQ(result.all.intervals, 1u);
  EXPECT_THAT(result.all.longer, ElementsAre(1, 1, 1, 1, 0, 0));  // 100 ms is not longer than 100 ms
  EXPECT_EQ(result.all.interval_bytes, 100 * kMega);
  EXPECT_EQ(result.all.movable_bytes, 0u);
  result = Characterize(workload, 2e9);
  EXPECT_EQ(result.all.movable_bytes, 100 * kMega);
  EXPECT_EQ(result.sizes[3].intervals, 1u);  // 100 MB and more
  EXPECT_EQ(result.sizes[2].intervals, 0u);
}

// A weight of 4 kernels of 1 ms: used by kernel 1 only, idle over the end for 3 ms. A gradient overwritten
// unread is dead.
TEST(CharacterizationTest, IdleTimesGoOverTheEndAndDeadOnesNeedNoMove) {
  Workload workload;
  workload.tensors = {{1000, true}, {2 * kMega, true}};
  for (int k = 0; k < 4; ++k) workload.kernels.push_back({"k", kMilli, {}, {}, 0});
  workload.kernels[1].inputs = {0};
  workload.kernels[2].outputs = {1};
  const Characterization result = Characterize(workload, 1e9);
  EXPECT_EQ(result.sizes[0].intervals, 1u);
  EXPECT_EQ(result.sizes[0].dead, 0u);
  EXPECT_THAT(result.sizes[0].longer, ElementsAre(1, 1, 1, 0, 0, 0));
  EXPECT_EQ(result.sizes[0].movable_bytes, 1000u);
  EXPECT_EQ(result.sizes[1].intervals, 1u);
  EXPECT_EQ(result.sizes[1].dead, 1u);
  EXPECT_EQ(result.sizes[1].interval_bytes, 0u);
}

TEST(CharacterizationTest, NothingIsNamed) {
  Workload workload;
  workload.tensors = {{1000, true}};
  workload.kernels = {{"k", 0, {}, {}, 0}};
  const Characterization result = Characterize(workload, 1e9);
  EXPECT_EQ(result.peak_live_bytes, 0u);
  EXPECT_EQ(result.all.tensors, 0u);
  EXPECT_EQ(result.active.most, 0);
}

}  // namespace
}  // namespace spillway::policy
