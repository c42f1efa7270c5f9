// The events of a StreamClock: what they cover, what is seen of them, who waits for them, and how they end.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/allocator/residency/state/stream_clock_fixture.h"
#include "tests/fakes/gate.h"
#include "tests/fakes/thread_state.h"

namespace spillway::allocator {
namespace {

class StreamEventsTest : public StreamClockFixture {};

TEST_F(StreamEventsTest, AWaitEndsWhenEverythingStops) {
  const CUstream handle = NewStream();
  const StreamIndex stream = clock_.Find({handle, false});
  PauseStreams(true);
  LaunchNothing(handle);
  const TimelineValue value{stream, clock_.Next(stream, 1)};
  const os::Wait wait(&waits_, os::WaitKind::kRunAhead, "");
  bool more = true;
  stopped_.store(true);
  EXPECT_EQ(clock_.WaitForOldest(wait, stopped_, &more).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(clock_.WaitFor(value, wait, stopped_, &more).code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(clock_.Completed(value));
  PauseStreams(false);
  PollUntil(value);
}

// A stream may wait for a word that the waiting thread will write.
TEST_F(StreamEventsTest, AWaitForTheBoundEndsWhenNothingCompletes) {
  const CUstream handle = NewStream();
  const StreamIndex stream = clock_.Find({handle, false});
  PauseStreams(true);
  LaunchNothing(handle);
  const TimelineValue value{stream, clock_.Next(stream, 1)};
  EXPECT_FALSE(WaitForOldest());
  const os::Wait wait(&waits_, os::WaitKind::kRunAhead, "");
  bool more = true;
  EXPECT_TRUE(clock_.WaitFor(value, wait, stopped_, &more).ok());
  EXPECT_FALSE(more);
  EXPECT_FALSE(clock_.Completed(value));
  PauseStreams(false);
  PollUntil(value);
}

TEST_F(StreamEventsTest, AnErrorOfAQueryDoesNotCompleteAnything) {
  CudaDriver driver = *driver_;
  DeviceError error;
  StreamClock clock(&driver, CoreDevice::Context(), &error);
  const StreamIndex stream = clock.Find({NewStream(), false});
  const TimelineValue value{stream, clock.Next(stream, 1)};
  ASSERT_TRUE(clock.Cover(value).ok());
  driver.cuEventQuery = [](CUevent) { return CUDA_ERROR_UNKNOWN; };
  for (int i = 0; i < 500; ++i) clock.Poll();
  EXPECT_FALSE(clock.Completed(value));
  EXPECT_FALSE(error.any());
  // One that does not go away is the device's.
  for (int i = 0; i < 1000; ++i) clock.Poll();
  EXPECT_EQ(error.first(), CUDA_ERROR_UNKNOWN);
}

TEST_F(StreamEventsTest, AStickyErrorIsKeptAndEndsEverything) {
  CudaDriver driver = *driver_;
  int stops = 0;
  DeviceError error([&] { ++stops; });
  StreamClock clock(&driver, CoreDevice::Context(), &error);
  const StreamIndex stream = clock.Find({NewStream(), false});
  const TimelineValue value{stream, clock.Next(stream, 1)};
  ASSERT_TRUE(clock.Cover(value).ok());
  driver.cuEventQuery = [](CUevent) { return CUDA_ERROR_ASSERT; };
  clock.Poll();
  EXPECT_EQ(error.first(), CUDA_ERROR_ASSERT);
  error.Record(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(error.first(), CUDA_ERROR_ASSERT);
  EXPECT_EQ(ResultOf(error.status(driver)), CUDA_ERROR_ASSERT);
  EXPECT_EQ(stops, 1);
}

TEST_F(StreamEventsTest, AnEventCoversTheNumbersTakenBeforeIt) {
  const StreamIndex stream = clock_.Find({NewStream(), false});
  PauseStreams(true);
  const TimelineValue first{stream, clock_.Next(stream, 100)};
  const TimelineValue second{stream, clock_.Next(stream, 50)};
  EXPECT_EQ(first.number, 1u);
  EXPECT_EQ(clock_.UncompletedBytes(), 150u);
  EXPECT_EQ(clock_.UncompletedLaunches(), 2u);
  ASSERT_TRUE(clock_.Cover(first).ok());
  const TimelineValue third{stream, clock_.Next(stream, 7)};
  EXPECT_FALSE(clock_.Completed(first)) << "the driver has not been asked";
  PauseStreams(false);
  PollUntil(second);
  EXPECT_FALSE(clock_.Completed(third));
  EXPECT_EQ(clock_.UncompletedBytes(), 7u);
  clock_.CoverAll();
  PollUntil(third);
  EXPECT_EQ(clock_.UncompletedLaunches(), 0u);
}

TEST_F(StreamEventsTest, WaitsForTheOldestAndSaysWhenNothingRuns) {
  EXPECT_FALSE(WaitForOldest());
  const StreamIndex stream = clock_.Find({NewStream(), false});
  const TimelineValue value{stream, clock_.Next(stream, 1)};
  EXPECT_TRUE(WaitForOldest());  // records the event that is missing
  EXPECT_TRUE(clock_.Completed(value));
  EXPECT_FALSE(WaitForOldest());
}

TEST_F(StreamEventsTest, ACaptureIsLeftAlone) {
  void* const library = dlopen(SPILLWAY_SIMCUDA_DRIVER, RTLD_NOW);
  const auto begin =
      reinterpret_cast<decltype(&cuStreamBeginCapture_v2)>(dlsym(library, "cuStreamBeginCapture_v2"));
  const auto end = reinterpret_cast<decltype(&cuStreamEndCapture)>(dlsym(library, "cuStreamEndCapture"));
  const CUstream handle = NewStream();
  const StreamIndex stream = clock_.Find({handle, false});
  ASSERT_EQ(begin(handle, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  const TimelineValue value{stream, clock_.Next(stream, 0)};  // a recordStream, or the end of a pin
  EXPECT_FALSE(clock_.Cover(value).ok());
  clock_.CoverAll();
  clock_.Poll();
  EXPECT_FALSE(clock_.Completed(value));
  CUgraph graph = nullptr;
  EXPECT_EQ(end(handle, &graph), CUDA_SUCCESS);
  EXPECT_TRUE(clock_.Cover(value).ok());
  PollUntil(value);
}

TEST_F(StreamEventsTest, ManyThreadsWaitForOneEvent) {
  const StreamIndex stream = clock_.Find({NewStream(), false});
  for (int round = 0; round < 200; ++round) {
    const TimelineValue value{stream, clock_.Next(stream, 1)};
    std::vector<std::thread> waiters;
    for (int i = 0; i < 4; ++i) {
      waiters.emplace_back([&] {
        driver_->cuCtxSetCurrent(CoreDevice::Context());
        while (WaitForOldest()) {
        }
      });
    }
    for (std::thread& waiter : waiters) waiter.join();
    ASSERT_TRUE(clock_.Completed(value));
  }
}

// The driver's first record of an event on `slow` lasts until the gate opens, as where a kernel is being loaded.
class SlowRecord {
 public:
  SlowRecord(CudaDriver* driver, CUstream slow) {
    slow_ = slow;
    wait_ = gate_.Wait();
    begun_ = false;
    real_ = driver->cuEventRecord;
    driver->cuEventRecord = [](CUevent event, CUstream stream) {
      if (stream == slow_ && !begun_.exchange(true)) wait_();
      return real_(event, stream);
    };
  }
  static bool begun() { return begun_; }
  void End() const { gate_.Open(); }

 private:
  const tests::Gate gate_;
  static inline CUstream slow_ = nullptr;
  static inline std::function<void()> wait_;
  static inline std::atomic<bool> begun_{false};
  static inline decltype(CudaDriver::cuEventRecord) real_ = nullptr;
};

TEST_F(StreamEventsTest, ACallOfTheDriverThatLastsHoldsNoOtherThreadUp) {
  CudaDriver driver = *driver_;
  const CUstream slow = NewStream(), other = NewStream();
  const SlowRecord record(&driver, slow);
  StreamClock clock(&driver, CoreDevice::Context(), &error_);
  const TimelineValue late{clock.Find({slow, false}), clock.Next(clock.Find({slow, false}), 1)};
  std::thread recorder([&] { EXPECT_TRUE(clock.Cover(late).ok()); });
  ASSERT_TRUE(tests::WaitUntil([&] { return record.begun(); }));
  std::atomic<bool> done = false;
  std::thread launching([&] {
    const TimelineValue value{clock.Find({other, false}), clock.Next(clock.Find({other, false}), 1)};
    EXPECT_TRUE(clock.Cover(value).ok());
    while (!clock.Completed(value)) clock.Poll();
    const absl::StatusOr<CUevent> event = clock.TakeEvent();
    EXPECT_TRUE(event.ok());
    if (event.ok()) clock.GiveEvent(*event);
    done = true;
  });
  EXPECT_TRUE(tests::WaitUntil([&] { return done.load(); })) << "it waits for another thread's call";
  EXPECT_FALSE(clock.Completed(late));
  record.End();
  recorder.join();
  launching.join();
  PollUntil(late, &clock);
}

TEST_F(StreamEventsTest, TwoThreadsRecordOnOneStreamAtOnce) {
  CudaDriver driver = *driver_;
  const CUstream handle = NewStream();
  const SlowRecord record(&driver, handle);
  StreamClock clock(&driver, CoreDevice::Context(), &error_);
  const StreamIndex stream = clock.Find({handle, false});
  const TimelineValue first{stream, clock.Next(stream, 10)};
  std::thread slow([&] { EXPECT_TRUE(clock.Cover(first).ok()); });
  ASSERT_TRUE(tests::WaitUntil([&] { return record.begun(); }));
  const TimelineValue second{stream, clock.Next(stream, 5)};
  EXPECT_TRUE(clock.Cover(second).ok());
  ASSERT_EQ(driver_->cuStreamSynchronize(handle), CUDA_SUCCESS);
  EXPECT_TRUE(clock.Poll());
  EXPECT_TRUE(clock.Completed(first));
  EXPECT_TRUE(clock.Completed(second));
  record.End();
  slow.join();
  ASSERT_EQ(driver_->cuStreamSynchronize(handle), CUDA_SUCCESS);
  EXPECT_TRUE(clock.Poll());
  EXPECT_TRUE(clock.Completed(second));
  EXPECT_EQ(clock.UncompletedBytes(), 0u);
}

TEST_F(StreamEventsTest, AStreamGoesWhenNobodyNamesItToTheDriverAnyMore) {
  CudaDriver driver = *driver_;
  const CUstream handle = NewStream();
  const SlowRecord record(&driver, handle);
  StreamClock clock(&driver, CoreDevice::Context(), &error_);
  const TimelineValue value{clock.Find({handle, false}), clock.Next(clock.Find({handle, false}), 1)};
  std::thread recorder([&] { EXPECT_TRUE(clock.Cover(value).ok()); });
  ASSERT_TRUE(tests::WaitUntil([&] { return record.begun(); }));
  std::atomic<bool> gone = false;
  std::atomic<pid_t> thread = 0;
  std::thread destroyer([&] {
    driver_->cuCtxSetCurrent(CoreDevice::Context());
    thread = gettid();
    clock.OnDestroy(handle);
    gone = true;
  });
  EXPECT_TRUE(tests::WaitUntil([&] { return gone || (thread != 0 && tests::ThreadWaits(thread)); }));
  EXPECT_FALSE(gone);
  record.End();
  recorder.join();
  destroyer.join();
  PollUntil(value, &clock);
}

}  // namespace
}  // namespace spillway::allocator
