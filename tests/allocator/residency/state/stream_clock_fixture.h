// A StreamClock alone on the stand-in driver, with what its tests of streams and of events share. The stand-in's streams
// run again when a test ends.

#ifndef SPILLWAY_TESTS_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_FIXTURE_H_
#define SPILLWAY_TESTS_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_FIXTURE_H_

#include <gtest/gtest.h>

#include "allocator/residency/state/stream_clock.h"
#include "tests/allocator/core_fixture.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {

class StreamClockFixture : public testing::Test {
 protected:
  StreamClockFixture() : clock_(CoreDevice::Driver(), CoreDevice::Context(), &error_) {
    driver_->cuCtxSetCurrent(CoreDevice::Context());
  }
  ~StreamClockFixture() override { PauseStreams(false); }

  CUstream NewStream() {
    CUstream stream = nullptr;
    EXPECT_EQ(driver_->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    return stream;
  }
  void PollUntil(TimelineValue value) { PollUntil(value, &clock_); }
  static void PollUntil(TimelineValue value, StreamClock* clock) {
    EXPECT_TRUE(tests::WaitUntil([&] {
      clock->Poll();
      return clock->Completed(value);
    }));
  }

  // False when nothing was there to wait for.
  bool WaitForOldest() {
    const os::Wait wait(&waits_, os::WaitKind::kRunAhead, "");
    bool more = true;
    EXPECT_TRUE(clock_.WaitForOldest(wait, stopped_, &more).ok());
    return more;
  }

  const CudaDriver* const driver_ = CoreDevice::Driver();
  os::WaitList waits_;
  os::Atomic<bool> stopped_{false};
  DeviceError error_;
  StreamClock clock_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_FIXTURE_H_
