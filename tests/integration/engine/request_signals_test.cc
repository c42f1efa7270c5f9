#include "integration/engine/request_signals.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>

namespace spillway::integration {
namespace {

class RequestSignalsTest : public ::testing::TestWithParam<SignalRequest> {};

TEST_P(RequestSignalsTest, WakeAndLeaveOthersHandlersAlone) {
  const SignalRequest request = GetParam();
  const SignalRequest other =
      request == SignalRequest::kStatus ? SignalRequest::kPause : SignalRequest::kStatus;
  const int signal = SignalOf(request);
  ASSERT_NE(::signal(signal, SIG_IGN), SIG_ERR);
  EXPECT_FALSE(InstallRequestSignal(request));
  EXPECT_EQ(::signal(signal, SIG_DFL), SIG_IGN);
  ASSERT_TRUE(InstallRequestSignal(request));
  EXPECT_FALSE(InstallRequestSignal(request));  // it is ours now, which is somebody's
  const int wake = ::eventfd(0, EFD_NONBLOCK);
  SetRequestWake(wake);
  EXPECT_FALSE(TakeRequest(request));
  const uint64_t before = RequestSignals();
  ::raise(signal);
  ::raise(signal);
  EXPECT_EQ(RequestSignals(), before + 2);
  pollfd ready = {wake, POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 1);
  EXPECT_FALSE(TakeRequest(other));
  EXPECT_TRUE(TakeRequest(request));
  EXPECT_FALSE(TakeRequest(request));
  SetRequestWake(-1);
  ::raise(signal);  // wakes nobody, ends nobody
  EXPECT_TRUE(TakeRequest(request));
  ::close(wake);
  ::signal(signal, SIG_DFL);
}

INSTANTIATE_TEST_SUITE_P(Both, RequestSignalsTest,
                         ::testing::Values(SignalRequest::kStatus, SignalRequest::kPause));

}  // namespace
}  // namespace spillway::integration
