// For tests of pauses: a device with host memory, pauses and resumes that must go well, and launches of other
// threads. On the test's thread.

#ifndef SPILLWAY_TESTS_ALLOCATOR_RESIDENCY_PAUSE_HELPERS_H_
#define SPILLWAY_TESTS_ALLOCATOR_RESIDENCY_PAUSE_HELPERS_H_

#include <gtest/gtest.h>

#include <thread>

#include "allocator/residency/residency.h"
#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {

inline constexpr PauseScope kAll;
inline constexpr PauseScope kFromOutside = {PausedBy::kOutside, 0};

inline CoreSetup WithHost(uint64_t bytes = 8 << 20) {
  CoreSetup setup;
  setup.host_bytes = bytes;
  return setup;
}

inline PauseStats Pause(CoreDevice& device, const PauseScope& scope = kAll) {
  PauseStats stats;
  const absl::Status status = device->Pause(scope, &stats);
  EXPECT_TRUE(status.ok()) << status;
  device->CheckInvariants();
  return stats;
}

inline void Resume(CoreDevice& device, const PauseScope& scope = kAll, bool wait = false) {
  const absl::Status status = device->Resume(scope, wait);
  EXPECT_TRUE(status.ok()) << status;
  device->CheckInvariants();
}

// On a thread of its own, as a job's.
inline std::thread Launching(CoreDevice& device, CUdeviceptr block, uint64_t version, CUresult expected) {
  return std::thread([=, &device] {
    const ScopedContext scope(CoreDevice::Driver(), CoreDevice::Context());
    EXPECT_EQ(FillOne(device, block, version), expected);
  });
}

inline CUdeviceptr FilledIn(CoreDevice& device, BlockRegion region, uint64_t version) {
  const CUdeviceptr block = device->Allocate(kBlock, {}, region).value();
  EXPECT_EQ(FillOne(device, block, version), CUDA_SUCCESS);
  device.Synchronize();
  return block;
}

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_RESIDENCY_PAUSE_HELPERS_H_
