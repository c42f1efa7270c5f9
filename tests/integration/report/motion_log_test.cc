#include "integration/report/motion_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

namespace spillway::integration {
namespace {

using allocator::BlockId;
using allocator::EndedMove;
using allocator::MoveKind;
using allocator::Stall;
using allocator::StallCause;
using ::testing::AllOf;
using ::testing::Field;
using ::testing::UnorderedElementsAre;
using Sums = MotionLog::LaunchSums;

EndedMove MoveOf(uint32_t block, uint64_t bytes, int64_t at = 0) {
  return {MoveKind::kGpuToHost, BlockId(0, block), bytes, at, at + 5};
}

Stall StallOf(uint32_t block, uint64_t tag, uint64_t nanos) {
  return {StallCause::kArrival, BlockId(0, block), tag, 0, nanos, 0};
}

TEST(MotionLogTest, KeepsTheLastMovesAndCountsTheOthers) {
  MotionLogOptions options;
  options.most_moves = 10;
  options.most_stalls = 2;
  MotionLog log(options);
  EXPECT_TRUE(log.Copy().moves.empty());
  for (int64_t i = 0; i < 25; ++i) log.OnMove(MoveOf(1, 100, i));
  for (uint64_t i = 0; i < 3; ++i) log.OnStall(StallOf(1, 7, i));
  const Motion motion = log.Copy();
  ASSERT_EQ(motion.moves.size(), 10u);
  EXPECT_EQ(motion.moves.front().began, 15);
  EXPECT_EQ(motion.moves.back().began, 24);
  EXPECT_EQ(motion.moves_dropped, 15u);
  ASSERT_EQ(motion.stalls.size(), 2u);
  EXPECT_EQ(motion.stalls.back().nanos, 2u);
  EXPECT_EQ(motion.stalls_dropped, 1u);
}

TEST(MotionLogTest, SumsAreOfTheWholeRun) {
  MotionLogOptions options;
  options.most_moves = options.most_stalls = 1;
  MotionLog log(options);
  for (int i = 0; i < 4; ++i) log.OnMove(MoveOf(3, 100));
  for (int i = 0; i < 5; ++i) log.OnStall(StallOf(3, 7, 10));
  log.OnStall(StallOf(3, 8, 1));
  log.OnStall(StallOf(0, 0, 1000));  // neither block nor launch is known
  EXPECT_EQ(log.SumsOf(BlockId(0, 3)).moved_bytes, 400u);
  EXPECT_EQ(log.SumsOf(BlockId(0, 3)).stalled_nanos, 51u);
  EXPECT_EQ(log.SumsOf(BlockId(0, 4)).moved_bytes, 0u);
  log.OnReach(7, 30);
  log.OnReach(7, 50);
  log.OnReach(0, 1000);
  const auto is = [](uint64_t tag, uint64_t stalled, uint64_t reaching, uint64_t bytes, uint64_t most) {
    return AllOf(Field(&Sums::tag, tag), Field(&Sums::stalled_nanos, stalled),
                 Field(&Sums::reaching, reaching), Field(&Sums::reached_bytes, bytes),
                 Field(&Sums::most_reached_bytes, most));
  };
  EXPECT_THAT(log.SumsByTag(), UnorderedElementsAre(is(7, 50, 2, 80, 50), is(8, 1, 0, 0, 0)));
}

TEST(MotionLogTest, WhatDoesNotFitTheTablesIsLeftOutOfTheSumsAlone) {
  MotionLogOptions options;
  options.most_blocks = 8;
  options.most_launches = 4;
  MotionLog log(options);
  log.OnMove(MoveOf(8, 100));
  log.OnStall(StallOf(4'000'000, 1, 10));
  for (uint64_t tag = 2; tag < 50; ++tag) log.OnStall(StallOf(1, tag, 10));
  EXPECT_EQ(log.SumsOf(BlockId(0, 8)).moved_bytes, 0u);
  EXPECT_EQ(log.SumsOf(BlockId(0, 4'000'000)).stalled_nanos, 0u);
  EXPECT_EQ(log.SumsByTag().size(), 4u);
  EXPECT_EQ(log.Copy().moves.size(), 1u);
  EXPECT_EQ(log.Copy().stalls.size(), 49u);
}

// For ThreadSanitizer, too: threads add while another copies, which takes the lock several times for a copy.
TEST(MotionLogTest, ACopyHasEachMoveOnceAndInOrderWhileOthersAdd) {
  MotionLogOptions options;
  options.most_moves = 20'000;
  MotionLog log(options);
  constexpr uint64_t kEach = 50'000;
  std::atomic<bool> done{false};
  std::vector<std::thread> adders;
  for (uint32_t block = 1; block <= 2; ++block) {
    adders.emplace_back([&, block] {
      for (uint64_t i = 0; i < kEach; ++i) {
        log.OnMove(MoveOf(block, 1, static_cast<int64_t>(i)));
        if (i % 16 == 0) log.OnStall(StallOf(block, block, 1));
      }
    });
  }
  std::thread waiter([&] {
    for (std::thread& adder : adders) adder.join();
    done.store(true);
  });
  uint64_t copies = 0;
  for (bool last = false; !last; ++copies) {
    last = done.load();
    const Motion motion = log.Copy();
    int64_t latest[3] = {-1, -1, -1};
    for (const EndedMove& move : motion.moves) {
      ASSERT_LT(latest[move.block.index()], move.began);
      latest[move.block.index()] = move.began;
    }
    if (last) {
      EXPECT_EQ(motion.moves.size() + motion.moves_dropped, 2 * kEach);
      EXPECT_EQ(motion.stalls.size() + motion.stalls_dropped, 2 * kEach / 16);
    }
  }
  waiter.join();
  EXPECT_GT(copies, 0u);
  EXPECT_EQ(log.SumsOf(BlockId(0, 1)).moved_bytes, kEach);
  EXPECT_EQ(log.SumsOf(BlockId(0, 2)).stalled_nanos, kEach / 16);
}

}  // namespace
}  // namespace spillway::integration
