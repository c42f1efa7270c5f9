// Calls that find no memory on a device that is full, and what the driver fails to tell of a kernel.

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "tests/integration/hooks/escape_fixture.h"

namespace spillway::integration {
namespace {

class FullDeviceTest : public LaunchHookTest {};

// A capture forbids calls that evictions make, and the answer is that of a GPU that is full.
TEST_F(FullDeviceTest, NothingIsEvictedForACallDuringACapture) {
  Publish();
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  driver().results["cuModuleLoadData"] = {CUDA_ERROR_OUT_OF_MEMORY};
  CUmodule module = nullptr;
  EXPECT_EQ(driver().Hooked<Row::cuModuleLoadData>()(&module, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  const std::vector<std::pair<int, uint64_t>> attempts = {{0, 0}};
  EXPECT_EQ(residency_[0].releases, attempts);
}

// The driver's answer for parameters is asked for again, after more memory has been given back.
TEST_F(FullDeviceTest, AKernelWhoseCodeFindsNoMemoryIsLaunchedOnceThereIsSome) {
  Publish();
  driver().results["cuFuncGetParamInfo"] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY};
  residency_[0].helpful_attempt = 1;
  EXPECT_EQ(Launch(2, Stream(1)), CUDA_SUCCESS);
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(2), Id(3)}));
  EXPECT_EQ(residency_[0].launches_reaching_all, 0);
  EXPECT_EQ(residency_[0].releases.size(), 2u);
}

TEST_F(FullDeviceTest, UntilTheDriverTellsItsParametersALaunchReachesEverything) {
  Publish();
  driver().results["cuFuncGetParamInfo"] = {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED};
  EXPECT_EQ(Launch(2, Stream(1)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
  EXPECT_EQ(switched_off(), "") << "such an answer passes";
  EXPECT_EQ(Launch(2, Stream(1)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
  EXPECT_EQ(residency_[0].launches.back().set, (Ids{Id(2), Id(3)}));
}

// The line comes once in a process: in one of its own.
TEST_F(FullDeviceTest, ALineNamesAKernelWhoseParametersAreNotAnswered) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Publish();
  const auto launch = [this] {
    driver().results["cuFuncGetParamInfo"] = {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED};
    std::_Exit(Launch(2, Stream(1)));
  };
  EXPECT_EXIT(launch(), ::testing::ExitedWithCode(0), "the driver does not report the parameters of");
}

}  // namespace
}  // namespace spillway::integration
