#include "policy/model/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

using ::testing::HasSubstr;

TEST(WorkloadTest, ChecksWhatReadersRelyOn) {
  Workload workload = MountainWorkload();
  EXPECT_TRUE(CheckWorkload(workload).ok());
  workload.kernels[3].inputs = {1, 0};
  EXPECT_THAT(std::string(CheckWorkload(workload).message()),
              HasSubstr("kernel 3: tensors are not ascending"));
  workload.kernels[3].inputs = {2};
  EXPECT_THAT(std::string(CheckWorkload(workload).message()), HasSubstr("tensor 2 does not exist"));
  workload.kernels[3].inputs = {};
  workload.kernels[4].duration = -1;
  EXPECT_FALSE(CheckWorkload(workload).ok());
  workload.kernels.clear();
  EXPECT_FALSE(CheckWorkload(workload).ok());
}

}  // namespace
}  // namespace spillway::policy
