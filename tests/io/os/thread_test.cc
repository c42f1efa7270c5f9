#include "io/os/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <csignal>
#include <string>

namespace spillway::os {
namespace {

TEST(ThreadTest, HasItsNameAndTakesNoSignals) {
  std::string name;
  bool blocked = true;
  absl::StatusOr<Thread> thread = StartThread("spillway-a-long-name", [&] {
    char text[16] = "";
    pthread_getname_np(pthread_self(), text, sizeof(text));
    name = text;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (const int signal : {SIGUSR1, SIGTERM, SIGXFSZ}) blocked = blocked && sigismember(&mask, signal) == 1;
  });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_EQ(name, "spillway-a-long");
  EXPECT_TRUE(blocked);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGTERM), 0) << "who starts it has its own mask back";
}

TEST(ThreadTest, TheSlackOfSleepsIsTheThreadsOwn) {
  const int before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  int inside = 0;
  absl::StatusOr<Thread> thread = StartThread("spillway-slack", [&inside] {
    SetTimerSlack(std::chrono::microseconds(3));
    inside = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_EQ(inside, 3000);
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), before);
}

}  // namespace
}  // namespace spillway::os
