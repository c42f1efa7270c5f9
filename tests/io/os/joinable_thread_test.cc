#include "io/os/joinable_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>

namespace spillway::os {
namespace {

using std::chrono::milliseconds;

TEST(JoinableThreadTest, OneThatEndsIsJoined) {
  JoinableThread thread;
  EXPECT_FALSE(thread.joinable());
  EXPECT_TRUE(thread.JoinFor(milliseconds(0))) << "never started";
  bool run = false;
  ASSERT_TRUE(thread.Start("spillway-test", [&run] { run = true; }).ok());
  EXPECT_TRUE(thread.JoinFor(std::chrono::seconds(60)));
  EXPECT_TRUE(run);
  EXPECT_FALSE(thread.joinable());
}

TEST(JoinableThreadTest, OneThatIsStuckIsLeftBehind) {
  // Outlives this test, as what a stuck thread uses must.
  const auto may_end = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  {
    JoinableThread thread;
    ASSERT_TRUE(thread
                    .Start("spillway-test",
                           [may_end, ended] {
                             may_end->get_future().wait();
                             ended->set_value();
                           })
                    .ok());
    EXPECT_FALSE(thread.JoinFor(milliseconds(1)));
    EXPECT_FALSE(thread.joinable());
  }
  may_end->set_value();
  ended->get_future().wait();
}

}  // namespace
}  // namespace spillway::os
