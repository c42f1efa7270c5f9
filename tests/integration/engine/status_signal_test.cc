#include "integration/engine/status_signal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>

namespace spillway::integration {
namespace {

TEST(StatusSignalTest, WakesAndLeavesOthersHandlersAlone) {
  ASSERT_NE(::signal(SIGUSR1, SIG_IGN), SIG_ERR);
  EXPECT_FALSE(InstallStatusSignal());
  EXPECT_EQ(::signal(SIGUSR1, SIG_DFL), SIG_IGN);
  ASSERT_TRUE(InstallStatusSignal());
  EXPECT_FALSE(InstallStatusSignal());  // it is ours now, which is somebody's
  const int wake = ::eventfd(0, EFD_NONBLOCK);
  SetStatusWake(wake);
  EXPECT_FALSE(TakeStatusRequest());
  ::raise(SIGUSR1);
  ::raise(SIGUSR1);
  pollfd ready = {wake, POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 1);
  EXPECT_TRUE(TakeStatusRequest());
  EXPECT_FALSE(TakeStatusRequest());
  SetStatusWake(-1);
  ::raise(SIGUSR1);  // wakes nobody, ends nobody
  EXPECT_TRUE(TakeStatusRequest());
  ::close(wake);
  ::signal(SIGUSR1, SIG_DFL);
}

}  // namespace
}  // namespace spillway::integration
