#include "integration/hooks/lifetime_families.h"

#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

class LifetimeFamiliesTest : public HookTest {};

TEST_F(LifetimeFamiliesTest, AFailedCaptureBeginIsNotCounted) {
  Publish();
  driver().results["cuStreamBeginCapture_v2"] = {CUDA_ERROR_ILLEGAL_STATE};
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(GetHookState()->captures, 0);
  EXPECT_EQ(residency_[0].captures_ended.size(), 1u);
}

TEST_F(LifetimeFamiliesTest, WhatEndsIsReportedBefore) {
  Publish();
  driver().Hooked<Row::cuStreamDestroy_v2>()(Stream(7));
  for (const FakeResidency& residency : residency_) {
    EXPECT_EQ(residency.destroyed, std::vector<CUstream>{Stream(7)});
  }
}

TEST_F(LifetimeFamiliesTest, AnUnloadedFunctionIsAskedAnew) {
  Publish();
  driver().param_sizes = {8};
  uint64_t words[2] = {0, Address(2)};
  void* params[] = {words};
  const auto launch = [&] {
    driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
  };
  launch();
  EXPECT_TRUE(residency_[0].launches.empty());  // one word of parameters: no address
  driver().param_sizes = {16};
  launch();
  EXPECT_TRUE(residency_[0].launches.empty());  // still the old layout
  driver().Hooked<Row::cuModuleUnload>()(reinterpret_cast<CUmodule>(0x3000));
  launch();
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(2)});
}

}  // namespace
}  // namespace spillway::integration
