#include "allocator/driver/memory_turn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "io/os/thread.h"

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
  std::atomic<int> came{0}, under_way{0};
  std::vector<int> order;  // written in turns
  const auto call = [&](int number) {
    return turn.Run([&] {
      EXPECT_EQ(under_way.fetch_add(1), 0);
      order.push_back(number);
      if (number == 0) {  // until all the others stand behind it
        while (came.load() < kThreads - 1) os::SleepFor(std::chrono::microseconds(100));
        os::SleepFor(std::chrono::milliseconds(300));
      }
      under_way.fetch_sub(1);
      return 0;
    });
  };
  std::vector<std::thread> threads;
  std::thread first([&] {
    call(0);
    call(kThreads);
  });
  while (under_way.load() == 0) os::SleepFor(std::chrono::microseconds(100));
  for (int number = 1; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      ++came;
      call(number);
    });
    while (came.load() < number) os::SleepFor(std::chrono::microseconds(100));
    os::SleepFor(std::chrono::milliseconds(5));
  }
  first.join();
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(order.size(), size_t{kThreads} + 1);
  EXPECT_EQ(order.front(), 0);
  EXPECT_EQ(order.back(), kThreads) << "its second call came last";
}

}  // namespace
}  // namespace spillway::allocator
