#include "integration/cli/common/exit_status.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

TEST(ExitStatusTest, ARefusalSaysWhyAndIsWrongUse) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Refuse(absl::InvalidArgumentError("trace=x is not there")), kWrongUse);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "spillway: trace=x is not there\n");
}

}  // namespace
}  // namespace spillway::integration
