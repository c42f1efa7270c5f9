#include "policy/model/active_share.h"

#include <gtest/gtest.h>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

TEST(ActiveShareTest, IsWeightedByKernelsAndByTime) {
  Workload workload;
  workload.tensors = {{30, true}, {70, true}};
  workload.kernels = {{"a", kMilli, {0}, {}, 0}, {"b", 3 * kMilli, {1}, {}, 0}};
  const ActiveShare share = FindActiveShare(workload, 100);
  EXPECT_DOUBLE_EQ(share.by_kernel, (0.3 + 0.7) / 2);
  EXPECT_DOUBLE_EQ(share.by_time, (0.3 + 3 * 0.7) / 4);
  EXPECT_DOUBLE_EQ(share.most, 0.7);
}

TEST(ActiveShareTest, WorkspaceCountsAndWhatIsReadAndWrittenCountsOnce) {
  Workload workload;
  workload.tensors = {{30, true}, {70, true}};
  workload.kernels = {{"a", kMilli, {0}, {0, 1}, 50}};
  EXPECT_DOUBLE_EQ(FindActiveShare(workload, 200).most, 0.75);
}

TEST(ActiveShareTest, NothingHasNone) {
  EXPECT_EQ(FindActiveShare(Workload(), 0).by_time, 0);
  Workload workload;
  workload.tensors = {{30, true}};
  workload.kernels = {{"a", 0, {0}, {}, 0}};
  EXPECT_EQ(FindActiveShare(workload, 30).by_time, 0) << "no time has passed";
  EXPECT_DOUBLE_EQ(FindActiveShare(workload, 30).by_kernel, 1);
}

}  // namespace
}  // namespace spillway::policy
