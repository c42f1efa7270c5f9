#include "integration/engine/not_served.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

TEST(NotServedTest, TheLineSaysHowToHaveTheJobEnded) {
  ::testing::internal::CaptureStderr();
  ReportNotServed("PyTorch is left as it is: why", IfNotServed::kGoOn);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "spillway: PyTorch is left as it is: why (SPILLWAY_REQUIRE=1 ends the job instead)\n");
}

TEST(NotServedDeathTest, AJobThatRequiresUsEndsWithTheReason) {
  EXPECT_EXIT(ReportNotServed("why", IfNotServed::kEndJob), ::testing::ExitedWithCode(2),
              "^spillway: why; the job ends, as SPILLWAY_REQUIRE asks\n$");
}

TEST(NotServedTest, ADeviceIsLeftToPyTorchUnlessTheJobRequiresUs) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(NotServedOn(1, "why", IfNotServed::kGoOn), absl::FailedPreconditionError("why"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "spillway: not used on GPU 1: why (SPILLWAY_REQUIRE=1 ends the job instead)\n");
  EXPECT_EQ(NotServedOn(1, "why", IfNotServed::kEndJob),
            absl::InvalidArgumentError("GPU 1 cannot be served, and SPILLWAY_REQUIRE is set: why"));
}

TEST(NotServedTest, TheSettingDecides) {
  Settings settings;
  EXPECT_EQ(IfNot(settings), IfNotServed::kGoOn);
  settings.require = true;
  EXPECT_EQ(IfNot(settings), IfNotServed::kEndJob);
}

}  // namespace
}  // namespace spillway::integration
