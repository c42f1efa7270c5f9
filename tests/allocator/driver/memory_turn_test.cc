#include "allocator/driver/memory_turn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/fakes/wait_until.h"

namespace spillway::allocator {
namespace {

TEST(MemoryTurnTest, ReturnsWhatTheCallReturns) {
  MemoryTurn turn;
  EXPECT_EQ(turn.Run([] { return 7; }), 7);
  EXPECT_EQ(turn.Run([] { return 8; }), 8);
}

// A thread that makes one call after another takes no turn from those who came before its next one.
TEST(MemoryTurnTest, OneAtATimeInTheOrderOfComing) {
  constexpr int kThreads = 6;
  MemoryTurn turn;
  std::atomic<int> under_way{0};
  std::vector<int> order;  // written in turns
  const auto all_stand = [&](uint64_t threads) {
    return tests::WaitUntil([&, threads] { return turn.standing() == threads; });
  };
  const auto call = [&](int number) {
    return turn.Run([&] {
      EXPECT_EQ(under_way.fetch_add(1), 0);
      order.push_back(number);
      EXPECT_TRUE(number != 0 || all_stand(kThreads));  // the first, until all the others stand behind it
      under_way.fetch_sub(1);
      return 0;
    });
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    call(0);
    call(kThreads);  // its second call
  });
  EXPECT_TRUE(all_stand(1));
  for (int number = 1; number < kThreads; ++number) {
    threads.emplace_back([&, number] { call(number); });
    EXPECT_TRUE(number == kThreads - 1 || all_stand(static_cast<uint64_t>(number) + 1));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, kThreads}));
}

}  // namespace
}  // namespace spillway::allocator
