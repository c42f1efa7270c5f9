// LaunchLog and the uses that launches record on blocks, alone on the stand-in driver.

#include "allocator/residency/state/launch_log.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/allocator/core_fixture.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {
namespace {

class LaunchLogTest : public testing::Test {
 protected:
  LaunchLogTest() : clock_(CoreDevice::Driver(), CoreDevice::Context(), &error_), log_(&clock_) {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
  }
  ~LaunchLogTest() override { PauseStreams(false); }

  static CUstream NewStream() {
    CUstream stream = nullptr;
    EXPECT_EQ(CoreDevice::Driver()->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0),
              CUDA_SUCCESS);
    return stream;
  }

  DeviceError error_;
  StreamClock clock_;
  LaunchLog log_;
};

TEST_F(LaunchLogTest, LaunchesAreCountedInTheOrderOfTheGateAcrossStreams) {
  const StreamIndex a = clock_.Find({NewStream(), false});
  const StreamIndex b = clock_.Find({NewStream(), false});
  policy::LaunchIndex index = 0;
  log_.Add(a, 0, &index);
  EXPECT_EQ(index, 0u);
  log_.Add(b, 0, &index);
  EXPECT_EQ(index, 1u);
  const TimelineValue third = log_.Add(a, 0, &index);
  EXPECT_EQ(log_.count(), 3u);
  EXPECT_EQ(third.number, 2u) << "of its stream";
  EXPECT_EQ(log_.ValueOf(2).Packed(), third.Packed());
  EXPECT_EQ(log_.ValueOf(1).stream, b);
  EXPECT_EQ(log_.ValueOf(3).stream, kNoStream) << "not launched yet";
}

TEST_F(LaunchLogTest, TheLatestLaunchOfAStreamIsFoundAmongThoseOfOthers) {
  const StreamIndex a = clock_.Find({NewStream(), false});
  const StreamIndex b = clock_.Find({NewStream(), false});
  policy::LaunchIndex index = 0;
  const TimelineValue first = log_.Add(a, 0, &index);
  for (uint32_t i = 1; i < LaunchLog::kScannedBack; ++i) log_.Add(b, 0, &index);
  EXPECT_EQ(log_.LatestOn(b, index).Packed(), log_.ValueOf(index).Packed());
  EXPECT_EQ(log_.LatestOn(a, index).Packed(), first.Packed());
  EXPECT_EQ(log_.LatestOn(b, 0).stream, kNoStream) << "none so early";
  log_.Add(b, 0, &index);
  EXPECT_EQ(log_.LatestOn(a, index).stream, kNoStream) << "too far back";
}

TEST_F(LaunchLogTest, OnlyTheLastValuesAreKnownAndOlderLaunchesAreOver) {
  const StreamIndex stream = clock_.Find({NewStream(), false});
  policy::LaunchIndex index = 0;
  for (uint64_t i = 0; i <= LaunchLog::kRing; ++i) log_.Add(stream, 0, &index);
  EXPECT_EQ(log_.ValueOf(0).stream, kNoStream);
  EXPECT_TRUE(log_.Completed(0));
  EXPECT_NE(log_.ValueOf(2).stream, kNoStream);
}

TEST_F(LaunchLogTest, ALaunchIsCompletedOnceTheGpuHasDoneIt) {
  const CUstream handle = NewStream();
  const StreamIndex stream = clock_.Find({handle, false});
  PauseStreams(true);
  LaunchNothing(handle);
  policy::LaunchIndex index = 0;
  log_.Add(stream, 0, &index);
  EXPECT_FALSE(log_.Completed(index));  // records the event that is missing
  EXPECT_FALSE(log_.Completed(index + 1));
  clock_.Poll();
  EXPECT_FALSE(log_.Completed(index));
  PauseStreams(false);
  EXPECT_TRUE(tests::WaitUntil([&] {
    clock_.Poll();
    return log_.Completed(index);
  }));
}

// ---- Uses of a block.

TEST_F(LaunchLogTest, ABlockKeepsTheLastUseOfEachStream) {
  Block block;
  PauseStreams(true);
  const StreamIndex a = clock_.Find({NewStream(), false});
  const StreamIndex b = clock_.Find({NewStream(), false});
  RecordUse(clock_, &block, {a, clock_.Next(a, 0)});
  RecordUse(clock_, &block, {b, clock_.Next(b, 0)});
  RecordUse(clock_, &block, {a, clock_.Next(a, 0)});
  const std::vector<TimelineValue> uses = UncompletedUses(clock_, &block);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].stream, a);
  EXPECT_EQ(uses[0].number, 2u);
  EXPECT_EQ(uses[1].number, 1u);
  EXPECT_FALSE(block.gate.many_streams.load());
}

TEST_F(LaunchLogTest, MoreStreamsThanEntriesAreAllWaitedForAndNotForgotten) {
  Block block;
  PauseStreams(true);
  std::vector<StreamIndex> streams;
  for (int i = 0; i < 9; ++i) streams.push_back(clock_.Find({NewStream(), false}));
  for (StreamIndex stream : streams) RecordUse(clock_, &block, {stream, clock_.Next(stream, 0)});
  // Asked twice: an eviction may be taken back and begun again.
  for (int i = 0; i < 2; ++i) {
    const std::vector<TimelineValue> uses = UncompletedUses(clock_, &block);
    for (StreamIndex stream : streams) {
      EXPECT_TRUE(std::any_of(uses.begin(), uses.end(),
                              [&](const TimelineValue& use) { return use.stream == stream; }));
    }
  }
}

TEST_F(LaunchLogTest, ThreadsHaveEntriesOfTheirOwnAndAllCount) {
  Block block;
  PauseStreams(true);
  const StreamIndex stream = clock_.Find({NewStream(), false});
  const TimelineValue first{stream, clock_.Next(stream, 0)};
  const TimelineValue second{stream, clock_.Next(stream, 0)};
  // The thread that took the later number writes first.
  RecordUse(clock_, &block, second, 7);
  RecordUse(clock_, &block, first, 8);
  RecordUse(clock_, &block, first, 7);
  const std::vector<TimelineValue> uses = UncompletedUses(clock_, &block);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(std::max(uses[0].number, uses[1].number), second.number);
  EXPECT_FALSE(block.gate.many_streams.load());
  block.ForgetUses();
  EXPECT_TRUE(UncompletedUses(clock_, &block).empty());
  // More threads than entries, and one without a section: everything launched so far counts.
  RecordUse(clock_, &block, second, 0);
  EXPECT_TRUE(block.gate.many_streams.load());
  block.ForgetUses();
  for (uint8_t thread = 1; thread <= Block::GateSide::kUses; ++thread)
    RecordUse(clock_, &block, second, thread);
  EXPECT_FALSE(block.gate.many_streams.load());
  RecordUse(clock_, &block, second, 100);
  EXPECT_TRUE(block.gate.many_streams.load());
  PauseStreams(false);
}

}  // namespace
}  // namespace spillway::allocator
