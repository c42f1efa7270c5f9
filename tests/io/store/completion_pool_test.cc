#include "io/store/completion_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>

namespace spillway::io {
namespace {

using std::chrono::milliseconds;

// Keeps a pool of one worker busy until Open.
class Gate {
 public:
  explicit Gate(CompletionPool* pool) {
    pool->Post([this] {
      begun_.set_value();
      may_end_.get_future().wait();
    });
    begun_.get_future().wait();
  }
  void Open() { may_end_.set_value(); }

 private:
  std::promise<void> begun_;
  std::promise<void> may_end_;
};

TEST(WorkersForTest, AreTwoADriveWithinAQuarterOfTheProcessors) {
  EXPECT_EQ(WorkersFor(1, 2), 2) << "two at least";
  EXPECT_EQ(WorkersFor(1, 128), 2);
  EXPECT_EQ(WorkersFor(4, 128), 8);
  EXPECT_EQ(WorkersFor(4, 16), 4);
  EXPECT_EQ(WorkersFor(0, 0), 2) << "nothing is known";
}

// Tasks that end only together: as many are under way at once.
TEST(CompletionPoolTest, AsManyTasksRunAtOnceAsThereAreWorkers) {
  for (const int workers : {2, 8}) {
    const std::unique_ptr<CompletionPool> pool = *CompletionPool::Create(workers);
    std::latch all(workers);
    for (int i = 0; i < workers; ++i) pool->Post([&all] { all.arrive_and_wait(); });
    EXPECT_TRUE(pool->WaitUntilIdle(std::chrono::seconds(60))) << workers;
  }
}

TEST(CompletionPoolTest, TasksStartInTheOrderOfPostingAndFirstOnesBeforeThem) {
  const std::unique_ptr<CompletionPool> pool = *CompletionPool::Create(1);
  Gate gate(pool.get());
  std::string order;  // the one worker's, until the pool is idle
  pool->Post([&order] { order += 'a'; });
  pool->Post([&order] { order += 'b'; });
  pool->PostFirst([&order] { order += 'c'; });
  gate.Open();
  ASSERT_TRUE(pool->WaitUntilIdle(std::chrono::seconds(60)));
  EXPECT_EQ(order, "cab");
}

TEST(CompletionPoolTest, IsIdleWhenTheLastTaskAndWhatItHeldAreGone) {
  const std::unique_ptr<CompletionPool> pool = *CompletionPool::Create(1);
  EXPECT_TRUE(pool->WaitUntilIdle(milliseconds(0)));
  Gate gate(pool.get());
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  pool->Post([held = std::move(held)] {});
  EXPECT_FALSE(pool->WaitUntilIdle(milliseconds(1)));
  EXPECT_FALSE(seen.expired());
  gate.Open();
  ASSERT_TRUE(pool->WaitUntilIdle(std::chrono::seconds(60)));
  EXPECT_TRUE(seen.expired());
}

TEST(CompletionPoolTest, NeverRunsATaskOnTheThreadThatPostsIt) {
  const std::unique_ptr<CompletionPool> pool = *CompletionPool::Create(2);
  const std::thread::id poster = std::this_thread::get_id();
  std::atomic<int> run{0};
  std::atomic<int> on_poster{0};
  const auto note = [&] {
    ++run;
    on_poster += std::this_thread::get_id() == poster;
  };
  for (int i = 0; i < 200; ++i) {
    pool->Post([&pool, &note] {
      pool->Post(note);  // a task may post others
      note();
    });
  }
  ASSERT_TRUE(pool->WaitUntilIdle(std::chrono::seconds(60)));
  EXPECT_EQ(run.load(), 400);
  EXPECT_EQ(on_poster.load(), 0);
}

}  // namespace
}  // namespace spillway::io
