#include "integration/engine/bounded_call.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>

namespace spillway::integration {
namespace {

TEST(RunWithinTest, WaitsForWorkThatEnds) {
  bool done = false;
  EXPECT_TRUE(RunWithin(std::chrono::seconds(60), [&done] { done = true; }));
  EXPECT_TRUE(done);
}

TEST(RunWithinTest, LeavesWorkBehindThatDoesNotEnd) {
  // Lives as long as the work that is left behind.
  const auto may_end = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  EXPECT_FALSE(RunWithin(std::chrono::milliseconds(1), [may_end, ended] {
    may_end->get_future().wait();
    ended->set_value();
  }));
  may_end->set_value();
  ended->get_future().wait();
}

}  // namespace
}  // namespace spillway::integration
