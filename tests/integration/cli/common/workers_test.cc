// Tasks on several threads: each once, together, the error of one thread, and a line only on a terminal and
// only after a while.

#include "integration/cli/common/workers.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <latch>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fakes/wait_until.h"

namespace spillway::integration {
namespace {

// The time is what the test says.
class SetClock : public os::Clock {
 public:
  explicit SetClock(int64_t now) : now_(now) {}
  int64_t NowNanos() const override {
    ++asked_;
    asked_.notify_all();
    return now_;
  }
  void Set(int64_t now) { now_ = now; }
  int asked() const { return asked_; }
  void WaitUntilAsked(int times) const {
    for (int is = asked_; is < times; is = asked_) asked_.wait(is);
  }

 private:
  std::atomic<int64_t> now_;
  mutable std::atomic<int> asked_ = 0;
};

TEST(WorkersTest, EachTaskRunsOnce) {
  for (const unsigned threads : {1u, 2u, 7u}) {
    std::vector<std::atomic<int>> runs(50);
    Workers(threads).ForEach("testing", runs.size(), [&runs](size_t i) { ++runs[i]; });
    for (const std::atomic<int>& one : runs) EXPECT_EQ(one, 1) << threads;
  }
  EXPECT_TRUE(Workers(3).TryForEach("testing", 0, [](size_t) { return absl::InternalError("none"); }).ok());
}

TEST(WorkersTest, AsManyRunTogetherAsThereAreThreads) {
  constexpr unsigned kThreads = 3;
  std::latch together(kThreads);
  Workers(kThreads).ForEach("testing", kThreads, [&together](size_t) {
    together.arrive_and_wait();  // for ever, if one waited for another's end
  });
  EXPECT_GE(Workers(0).threads(), 1u);
}

// Tasks 5 and 9 fail. On one thread 5 is the one that is told, and nothing is begun after it.
TEST(WorkersTest, TheErrorIsThatOfOneThread) {
  for (const unsigned threads : {1u, 2u, 4u, 16u}) {
    std::atomic<size_t> begun = 0;
    const absl::Status status = Workers(threads).TryForEach("testing", 1000, [&begun](size_t i) {
      ++begun;
      return i == 5 || i == 9 ? absl::InternalError(absl::StrCat("task ", i)) : absl::OkStatus();
    });
    EXPECT_EQ(status, absl::InternalError("task 5")) << threads;
    if (threads == 1) {
      EXPECT_EQ(begun, 6u);
    }
  }
}

// A child whose standard error is a terminal that this end reads.
struct OnTerminal {
  pid_t child = -1;
  int end = -1;

  explicit OnTerminal(const std::function<void()>& body) {
    child = ::forkpty(&end, nullptr, nullptr, nullptr);
    if (child != 0) return;
    body();
    ::_exit(0);
  }
  ~OnTerminal() { ::close(end); }

  // What was written until `text` came, or all.
  std::string ReadTo(const std::string& text) const {
    std::string all;
    char buffer[256];
    for (ssize_t got = 0; !absl::StrContains(all, text) && (got = ::read(end, buffer, sizeof(buffer))) > 0;)
      all.append(buffer, static_cast<size_t>(got));
    return all;
  }
  int Status() const {
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }
};

TEST(WorkersTest, ALineSaysOnATerminalHowFarItIs) {
  const OnTerminal terminal([] {
    SetClock clock(0);
    Workers workers(1, stderr, &clock);
    workers.ForEach("counting", 3, [&clock](size_t i) {
      if (i == 1) clock.Set(2 * os::kSecond);
      if (i == 2) ::pause();  // the other end has read the line, and ends this
    });
  });
  EXPECT_TRUE(absl::StrContains(terminal.ReadTo("2 of 3"), "counting 2 of 3"));
  ::kill(terminal.child, SIGINT);
  const std::string rest = terminal.ReadTo(ProgressBar::kClear);
  EXPECT_TRUE(absl::StrContains(rest, ProgressBar::kClear)) << "the line is taken off the terminal";
  const int status = terminal.Status();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << "and the process ends as by the signal";
}

TEST(WorkersTest, NothingIsShownBeforeAWhile) {
  const OnTerminal terminal([] {
    const SetClock clock(0);
    Workers workers(2, stderr, &clock);
    workers.ForEach("counting", 4, [&clock](size_t) {
      clock.WaitUntilAsked(3);  // at the beginning, and when the progress was looked at twice
    });
    std::fputs("end", stderr);
  });
  EXPECT_EQ(terminal.ReadTo("end"), "end");
  EXPECT_EQ(terminal.Status(), 0);
}

TEST(WorkersTest, NothingIsShownWhereThereIsNoTerminal) {
  std::FILE* const file = std::tmpfile();
  SetClock clock(0);
  Workers workers(2, file, &clock);
  clock.Set(2 * Workers::kWaitNanos);
  workers.ForEach("counting", 2, [&clock](size_t) {  // long enough for two looks, which there must not be
    EXPECT_FALSE(tests::WaitUntil([&clock] { return clock.asked() > 1; }, std::chrono::milliseconds(500)));
  });
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

}  // namespace
}  // namespace spillway::integration
