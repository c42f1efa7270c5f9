// StreamClock: streams, their numbers and their indices. Its events: stream_events_test.cc.

#include "allocator/residency/state/stream_clock.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/allocator/residency/state/stream_clock_fixture.h"

namespace spillway::allocator {
namespace {

class StreamClockTest : public StreamClockFixture {};

TEST_F(StreamClockTest, TellsStreamsApart) {
  const CUstream one = NewStream();
  const CUstream two = NewStream();
  const StreamIndex legacy = clock_.Find({nullptr, false});
  EXPECT_EQ(clock_.Find({CU_STREAM_LEGACY, false}), legacy);
  EXPECT_NE(clock_.Find({one, false}), clock_.Find({two, false}));
  EXPECT_EQ(clock_.Find({one, false}), clock_.Find({one, true}));
  const StreamIndex mine = clock_.Find({nullptr, true});
  EXPECT_EQ(clock_.Find({CU_STREAM_PER_THREAD, false}), mine);
  EXPECT_NE(mine, legacy);
  EXPECT_TRUE(clock_.IsPerThread(mine));
  StreamIndex other = kNoStream;
  std::thread([&] { other = clock_.Find({nullptr, true}); }).join();
  EXPECT_NE(other, mine);
}

TEST_F(StreamClockTest, AStreamThatGoesIsCoveredFirst) {
  const CUstream handle = NewStream();
  const StreamIndex stream = clock_.Find({handle, false});
  PauseStreams(true);
  const TimelineValue value{stream, clock_.Next(stream, 9)};
  clock_.OnDestroy(handle);
  EXPECT_FALSE(clock_.Completed(value));
  EXPECT_TRUE(clock_.Cover(value).ok());  // nothing left to do
  EXPECT_NE(clock_.Find({NewStream(), false}), stream) << "its work is under way";
  PauseStreams(false);
  PollUntil(value);
  EXPECT_EQ(driver_->cuStreamDestroy_v2(handle), CUDA_SUCCESS);
  const StreamIndex next = clock_.Find({NewStream(), false});
  EXPECT_EQ(next, stream) << "the place of one that has ended is the first to be given out";
  EXPECT_FALSE(clock_.Completed({next, clock_.Next(next, 1)}));
  EXPECT_TRUE(clock_.Completed(value));
}

TEST_F(StreamClockTest, AStreamThatGoesAndCannotBeRecordedOnIsWaitedFor) {
  CudaDriver driver = *driver_;
  StreamClock clock(&driver, CoreDevice::Context(), &error_);
  const CUstream handle = NewStream();
  const StreamIndex stream = clock.Find({handle, false});
  const TimelineValue covered{stream, clock.Next(stream, 5)};
  ASSERT_TRUE(clock.Cover(covered).ok());
  const TimelineValue last{stream, clock.Next(stream, 9)};
  driver.cuEventRecord = [](CUevent, CUstream) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; };
  clock.OnDestroy(handle);
  EXPECT_TRUE(clock.Completed(last));
  EXPECT_EQ(clock.UncompletedBytes(), 0u);
  clock.Poll();  // sees the event of the launch before
  EXPECT_TRUE(clock.Completed(last));
  EXPECT_EQ(clock.UncompletedBytes(), 0u);
  const StreamIndex next = clock.Find({NewStream(), false});
  ASSERT_EQ(next, stream);
  clock.Next(next, 3);
  EXPECT_TRUE(clock.MayComplete()) << "what the driver refused was of the stream before";
}

// Handles that are no streams; the driver answers so.
class SyntheticStreams {
 public:
  explicit SyntheticStreams(size_t count = 3 * StreamClock::kMaxStreams) : zeros_((count + 1) * kBytes) {
    SetSimcuda("HANDLES", "answer");
  }
  ~SyntheticStreams() { SetSimcuda("HANDLES", "stop"); }
  SyntheticStreams(const SyntheticStreams&) = delete;
  SyntheticStreams& operator=(const SyntheticStreams&) = delete;
  CUstream operator[](size_t i) { return reinterpret_cast<CUstream>(zeros_.data() + i * kBytes); }

 private:
  static constexpr size_t kBytes = 1024;
  std::vector<char> zeros_;
};

TEST_F(StreamClockTest, IndicesOfDeadStreamsServeNewOnes) {
  SyntheticStreams streams;
  for (int i = 0; i < 3 * StreamClock::kMaxStreams; ++i) {
    const CUstream handle = streams[i];
    ASSERT_NE(clock_.Find({handle, false}), kNoStream) << i;
    clock_.OnDestroy(handle);  // nothing was launched: no event is recorded on the made-up handle
  }
}

// A job may destroy streams faster than the GPU, or anyone who looks, gets to their ends.
TEST_F(StreamClockTest, IndicesOfDeadStreamsWithWorkUnderWayServeNewOnes) {
  PauseStreams(true);
  std::vector<TimelineValue> values;
  for (int i = 0; i < StreamClock::kMaxStreams + 8; ++i) {
    const CUstream handle = NewStream();
    const StreamIndex stream = clock_.Find({handle, false});
    ASSERT_NE(stream, kNoStream) << i;
    LaunchNothing(handle);
    values.push_back({stream, clock_.Next(stream, 1)});
    clock_.OnDestroy(handle);
    ASSERT_EQ(driver_->cuStreamDestroy_v2(handle), CUDA_SUCCESS);
  }
  clock_.Poll();
  for (const TimelineValue& value : values) EXPECT_FALSE(clock_.Completed(value));
  EXPECT_EQ(clock_.UncompletedLaunches(), values.size());
  PauseStreams(false);
  for (const TimelineValue& value : values) PollUntil(value);
  EXPECT_EQ(clock_.UncompletedBytes(), 0u);
}

// The work of a stream whose index has been taken over counts until it ends, whatever the new stream does.
TEST_F(StreamClockTest, ANewStreamDoesNotCompleteTheOldOnesWork) {
  PauseStreams(true);
  const CUstream first = NewStream();
  const TimelineValue old = {clock_.Find({first, false}), clock_.Next(clock_.Find({first, false}), 1)};
  LaunchNothing(first);
  clock_.OnDestroy(first);
  SyntheticStreams synthetic;
  CUstream second = NewStream();
  StreamIndex index = kNoStream;
  for (int i = 1; index != old.stream; ++i) {
    ASSERT_LE(i, StreamClock::kMaxStreams);
    // The last index is the dead stream's.
    index =
        i < StreamClock::kMaxStreams - 1 ? clock_.Find({synthetic[i], false}) : clock_.Find({second, false});
  }
  const TimelineValue value = {index, clock_.Next(index, 1)};
  EXPECT_GT(value.number, old.number);
  EXPECT_TRUE(clock_.Cover(value).ok());  // on an idle stream: its event completes at once
  ASSERT_EQ(driver_->cuStreamSynchronize(second), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) clock_.Poll();
  EXPECT_FALSE(clock_.Completed(old));
  PauseStreams(false);
  PollUntil(value);
  EXPECT_TRUE(clock_.Completed(old));
}

// After a long life every place of the table has had a key. Streams that were never named come and go then, too.
TEST_F(StreamClockTest, AStreamThatWasNeverNamedTakesNoOtherWithIt) {
  constexpr size_t kBefore = 65'536, kAlive = 512, kUnnamed = 4096;
  SyntheticStreams streams(kBefore + kAlive + kUnnamed);
  for (size_t i = 0; i < kBefore; ++i) {
    ASSERT_NE(clock_.Find({streams[i], false}), kNoStream);
    clock_.OnDestroy(streams[i]);
  }
  std::vector<StreamIndex> alive;
  for (size_t i = kBefore; i < kBefore + kAlive; ++i) alive.push_back(clock_.Find({streams[i], false}));
  for (size_t i = kBefore + kAlive; i < kBefore + kAlive + kUnnamed; ++i) clock_.OnDestroy(streams[i]);
  for (size_t i = 0; i < kAlive; ++i) ASSERT_EQ(clock_.Find({streams[kBefore + i], false}), alive[i]) << i;
}

TEST_F(StreamClockTest, MoreLivingStreamsThanIndicesAreRefused) {
  SyntheticStreams streams;
  for (int i = 1; i < StreamClock::kMaxStreams; ++i) {
    ASSERT_NE(clock_.Find({streams[i], false}), kNoStream) << i;
  }
  EXPECT_EQ(clock_.Find({streams[StreamClock::kMaxStreams], false}), kNoStream);
}

}  // namespace
}  // namespace spillway::allocator
