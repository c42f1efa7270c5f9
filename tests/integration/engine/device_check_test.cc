#include "integration/engine/device_check.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

TEST(DeviceCheckTest, TuringAndLaterAreServed) {
  for (const int capability : {75, 80, 86, 89, 90, 100, 103, 120, 121})
    EXPECT_TRUE(CheckDevice(capability).ok());
}

TEST(DeviceCheckTest, VoltaAndEarlierAreNot) {
  for (const int capability : {52, 61, 70, 72}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(CheckDevice(capability))) << capability;
  }
  EXPECT_EQ(CheckDevice(70).message(),
            "its compute capability is 7.0, and 7.5 or later is needed: on older GPUs kernels may fail while "
            "memory is "
            "mapped");
}

TEST(DeviceCheckTest, WhatIsNotKnownIsNoReason) { EXPECT_TRUE(CheckDevice(0).ok()); }

}  // namespace
}  // namespace spillway::integration
