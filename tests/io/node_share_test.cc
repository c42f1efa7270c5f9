#include "io/node_share.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/os/clock.h"
#include "tests/fakes/wait_until.h"
#include "tests/sizes.h"

namespace spillway::io {
namespace {

using ::testing::IsEmpty;

constexpr uint64_t kTotal = 800 * kMiB;
constexpr int kSkipped = 3;  // exit status of a process that may not do what it is to show

// ---- The division, as a table. In units of a hundredth of the total.

struct Row {
  const char* what;
  int expected;
  bool all_seen;
  std::vector<ShareEntry> others;
  uint64_t most;
};

const Row kRows[] = {
    {"alone, number not known", 0, true, {}, 800},
    {"one of two, number not known", 0, true, {{0, 0}}, 400},
    {"the other has too much still", 0, true, {{800, 800}}, 400},
    {"four, number not known", 0, true, {{0, 0}, {100, 0}, {0, 300}}, 200},
    {"the first of eight lends nothing", 8, false, {}, 100},
    {"not all of eight seen", 8, false, {{0, 0}, {0, 0}}, 100},
    {"the others want nothing", 4, true, {{0, 0}, {0, 0}, {0, 0}}, 800},
    {"what the others hold is theirs", 4, true, {{100, 100}, {50, 50}, {0, 0}}, 650},
    {"one asks for a little", 4, true, {{0, 30}, {0, 0}, {0, 0}}, 770},
    {"one asks for more than its part", 4, true, {{0, 700}, {0, 0}, {0, 0}}, 600},
    {"two have more than their part, one asks", 4, true, {{400, 400}, {0, 200}, {0, 0}}, 200},
    {"one was killed, the others have its part", 4, true, {{100, 100}, {100, 100}}, 600},
    {"more than were expected", 2, true, {{0, 0}, {0, 0}, {0, 0}}, 800},
    {"more than were expected, all ask", 2, true, {{0, 800}, {0, 800}, {0, 800}}, 200},
};

TEST(MostToTakeTest, FollowsWhatTheOthersHoldAndWant) {
  for (const Row& row : kRows) {
    EXPECT_EQ(MostToTake({800, row.expected, row.all_seen}, row.others), row.most) << row.what;
  }
  EXPECT_EQ(MostToTake({0, 4, true}, {{5, 5}}), 0u) << "nothing to share";
}

TEST(MostToTakeTest, TogetherTheyGetAllAndNoMore) {
  for (const int expected : {0, 4}) {
    uint64_t sum = 0;
    for (int i = 0; i < 4; ++i) {
      sum += MostToTake({kTotal, expected, true}, {{0, kTotal}, {0, kTotal}, {0, kTotal}});
    }
    EXPECT_EQ(sum, kTotal) << expected;
  }
}

// ---- The registry.

// A directory of the test's own, as all tests of this file share the machine's.
class NodeShareTest : public ::testing::Test {
 protected:
  NodeShareTest() {
    char name[] = "/tmp/node-share-XXXXXX";
    directory_ = mkdtemp(name);
    EXPECT_EQ(chmod(directory_.c_str(), 0755), 0);
  }
  ~NodeShareTest() override {
    for (const pid_t child : children_) End(child);
    rmdir(directory_.c_str());
  }

  NodeShare::Options Options(int expected = 0, const std::string& account = "test") const {
    return {{directory_}, account, expected, kMiB};
  }

  // Runs `body` in a process of its own that then stays until it is killed.
  pid_t Start(const std::function<void()>& body) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      body();
      const ssize_t written = write(ready[1], "r", 1);
      while (written == 1) pause();
      _exit(1);
    }
    close(ready[1]);
    char answer = 0;
    EXPECT_EQ(read(ready[0], &answer, 1), 1) << "the process ended instead";
    close(ready[0]);
    children_.push_back(child);
    return child;
  }
  void End(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  // A process that holds so much until it is killed.
  pid_t StartTaker(uint64_t bytes, int expected = 0, uint64_t wanted = 0) {
    return Start([&] {
      NodeShare* const share = new NodeShare(Options(expected));
      if (!share->Register(bytes, kTotal)) _exit(1);
      share->Want(wanted);
    });
  }

  std::string directory_;
  std::vector<pid_t> children_;
};

TEST_F(NodeShareTest, SeesWhatOthersHoldAndWant) {
  NodeShare first(Options());
  NodeShare second(Options());
  ASSERT_TRUE(first.entered() && second.entered());
  ASSERT_TRUE(first.Register(100 * kMiB, kTotal));
  first.Want(700 * kMiB);
  second.Look();
  EXPECT_EQ(second.peers(), 1u);
  EXPECT_EQ(second.taken_by_peers(), 100 * kMiB);
  EXPECT_EQ(second.AvailableNow(kTotal), 400 * kMiB);
  first.Want(0);
  ASSERT_TRUE(first.Register(0, kTotal));
  second.Look();
  EXPECT_EQ(second.peers(), 1u) << "one that holds nothing is there, too";
  EXPECT_EQ(second.taken_by_peers(), 0u);
  first.Close();
  second.Look();
  EXPECT_EQ(second.peers(), 0u);
  EXPECT_EQ(second.MostToTake(kTotal), kTotal);
}

TEST_F(NodeShareTest, NoMoreIsHeldThanThereIs) {
  NodeShare first(Options());
  ASSERT_TRUE(first.Register(kTotal, kTotal));
  NodeShare second(Options());
  EXPECT_FALSE(second.Register(kMiB, kTotal)) << "it has to wait for the first";
  EXPECT_EQ(second.taken(), 0u);
  first.Look();
  EXPECT_EQ(first.taken_by_peers(), 0u) << "a refused one leaves nothing behind";
  ASSERT_TRUE(first.Register(first.MostToTake(kTotal), kTotal));
  EXPECT_TRUE(second.Register(kTotal / 2, kTotal));
  EXPECT_FALSE(first.Register(kTotal / 2 + kMiB, kTotal));
}

TEST_F(NodeShareTest, UnitsAreRoundedUpAndEnd) {
  NodeShare first(Options());
  NodeShare second(Options());
  ASSERT_TRUE(first.Register(1, kTotal));
  second.Look();
  EXPECT_EQ(second.taken_by_peers(), kMiB);
  ASSERT_TRUE(first.Register(uint64_t{1} << 60, UINT64_MAX)) << "more than a lock can say: it says the most";
  second.Look();
  EXPECT_EQ(second.peers(), 1u);
  EXPECT_GT(second.taken_by_peers(), uint64_t{4} << 40);
}

TEST_F(NodeShareTest, AccountsAreApart) {
  NodeShare first(Options(0, "a"));
  NodeShare second(Options(0, "b"));
  ASSERT_TRUE(first.Register(kTotal, kTotal));
  second.Look();
  EXPECT_EQ(second.peers(), 0u);
  EXPECT_TRUE(second.Register(kTotal, kTotal));
}

TEST_F(NodeShareTest, WithoutADirectoryAProcessIsAlone) {
  NodeShare share({{"/nowhere", ""}, "test", 4, kMiB});
  EXPECT_FALSE(share.entered());
  EXPECT_EQ(share.MostToTake(kTotal), kTotal / 4) << "nothing is lent by those who cannot be seen";
  EXPECT_TRUE(share.Register(kTotal / 4, kTotal));
  EXPECT_FALSE(share.Register(kTotal / 2, kTotal));
}

TEST_F(NodeShareTest, OthersLocksAreNotBelieved) {
  const int fd = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct flock all = {};
  all.l_type = F_RDLCK;
  ASSERT_EQ(fcntl(fd, F_OFD_SETLK, &all), 0) << "up to the end";
  NodeShare share(Options(8));
  EXPECT_FALSE(share.entered()) << "no place is free";
  EXPECT_EQ(share.MostToTake(kTotal), kTotal / 8);
  close(fd);
}

TEST_F(NodeShareTest, OneThatIsKilledIsGoneAtOnce) {
  const pid_t holder = StartTaker(kTotal);
  NodeShare share(Options());
  EXPECT_EQ(share.taken_by_peers(), kTotal);
  const int64_t killed = os::Clock::System()->NowNanos();
  End(holder);
  children_.clear();
  share.Look();
  EXPECT_EQ(share.taken_by_peers(), 0u);
  EXPECT_LT(os::Clock::System()->NowNanos() - killed, 1'000'000'000);
  EXPECT_TRUE(share.Register(kTotal, kTotal));
}

TEST_F(NodeShareTest, AForkedChildThatClosesLeavesTheParentIn) {
  NodeShare share(Options());
  ASSERT_TRUE(share.Register(100 * kMiB, kTotal));
  Start([&] { share.Close(); });
  NodeShare other(Options());
  EXPECT_EQ(other.taken_by_peers(), 100 * kMiB);
}

// Each takes what it can and waits, as the owners of a share do, and says by pipe when it has its part.
TEST_F(NodeShareTest, EightAtOnceGetTheirEqualShares) {
  constexpr int kProcesses = 8;
  int parts[2];
  ASSERT_EQ(pipe(parts), 0);
  for (int i = 0; i < kProcesses; ++i) {
    Start([&] {
      std::thread([&, expected = i % 2 == 0 ? kProcesses : 0] {
        NodeShare share(Options(expected));
        const uint64_t part = kTotal / kProcesses;
        for (uint64_t taken = 0; taken < part;) {
          if (!tests::WaitUntil([&] { return share.Register(taken + 4 * kMiB, kTotal); })) _exit(1);
          taken += 4 * kMiB;
          if (share.taken() + share.taken_by_peers() > kTotal + 4 * kMiB * kProcesses) _exit(1);
        }
        if (write(parts[1], "p", 1) != 1) _exit(1);
        pause();
      }).detach();
    });
  }
  for (int i = 0; i < kProcesses; ++i) {
    char part = 0;
    ASSERT_EQ(read(parts[0], &part, 1), 1);
  }
  NodeShare late(Options(kProcesses));
  EXPECT_EQ(late.peers(), size_t{kProcesses});
  EXPECT_EQ(late.taken_by_peers(), kTotal);
  EXPECT_FALSE(late.Register(kMiB, kTotal));
  End(children_.back());
  children_.pop_back();
  EXPECT_TRUE(late.Register(kTotal / kProcesses, kTotal)) << "the killed one's part";
  close(parts[0]);
  close(parts[1]);
}

// ---- What processes have in common.

TEST_F(NodeShareTest, UsersSeeEachOther) {
  if (getuid() != 0) GTEST_SKIP() << "needs root";
  Start([&] {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    NodeShare* const share = new NodeShare(Options());
    if (!share->entered() || !share->Register(100 * kMiB, kTotal)) _exit(1);
  });
  NodeShare share(Options());
  EXPECT_EQ(share.taken_by_peers(), 100 * kMiB);
}

TEST(HostMemoryShareDirectoriesTest, AreSeenWithoutTheSharedMemoryFolder) {
  const NodeShare::Options options = {HostMemoryShareDirectories(), "test of shares", 0, kMiB};
  NodeShare share(options);
  ASSERT_TRUE(share.entered());
  ASSERT_TRUE(share.Register(100 * kMiB, kTotal));
  const pid_t child = fork();
  if (child == 0) {
    share.Close();
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("own", "/dev/shm", "tmpfs", 0, nullptr) != 0)
      _exit(kSkipped);
    const NodeShare other(options);
    _exit(other.entered() && other.taken_by_peers() >= 100 * kMiB ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no mounts of our own here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(MountRootTest, IsTheHighestOfTheFileSystem) {
  EXPECT_EQ(MountRoot("/proc/self"), "/proc");
  EXPECT_EQ(MountRoot("/nowhere"), "");
}

}  // namespace
}  // namespace spillway::io
