#include "io/store/node_share.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <new>
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
  int ranks;
  uint64_t taken_by_peers;
  uint64_t most;
};

const Row kRows[] = {
    {"alone, number not known", 0, 0, 800},
    {"others have a part, number not known", 0, 300, 500},
    {"others have all", 0, 800, 0},
    {"others have more than there is", 0, 900, 0},
    {"one of eight", 8, 0, 100},
    {"the others have their parts", 8, 700, 100},
    {"more ranks than were said", 2, 600, 200},
    {"nothing is left for a rank", 2, 800, 0},
};

TEST(MostToTakeTest, IsAnEqualPartOrWhatIsFree) {
  for (const Row& row : kRows)
    EXPECT_EQ(MostToTake(800, row.ranks, row.taken_by_peers), row.most) << row.what;
  EXPECT_EQ(MostToTake(0, 4, 5), 0u) << "nothing to share";
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

  NodeShare::Options Options(int ranks = 0, const std::string& account = "test") const {
    return {{directory_}, account, ranks, kMiB};
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
  pid_t StartTaker(uint64_t bytes) {
    return Start([&] {
      NodeShare* const share = new NodeShare(Options());
      if (!share->Register(bytes, kTotal)) _exit(1);
    });
  }

  std::string directory_;
  std::vector<pid_t> children_;
};

TEST_F(NodeShareTest, SeesWhatOthersHold) {
  NodeShare first(Options());
  NodeShare second(Options());
  ASSERT_TRUE(first.entered() && second.entered());
  ASSERT_TRUE(first.Register(100 * kMiB, kTotal));
  second.Scan();
  EXPECT_EQ(second.peers(), 1u);
  EXPECT_EQ(second.taken_by_peers(), 100 * kMiB);
  EXPECT_EQ(second.MostToTake(kTotal), kTotal - 100 * kMiB);
  ASSERT_TRUE(first.Register(0, kTotal));
  second.Scan();
  EXPECT_EQ(second.peers(), 1u) << "one that holds nothing is there, too";
  EXPECT_EQ(second.taken_by_peers(), 0u);
  first.Close();
  second.Scan();
  EXPECT_EQ(second.peers(), 0u);
  EXPECT_EQ(second.MostToTake(kTotal), kTotal);
}

TEST_F(NodeShareTest, NoMoreIsHeldThanThereIs) {
  NodeShare first(Options());
  ASSERT_TRUE(first.Register(kTotal, kTotal));
  NodeShare second(Options());
  EXPECT_FALSE(second.Register(kMiB, kTotal)) << "it has to wait for the first";
  EXPECT_EQ(second.taken(), 0u);
  first.Scan();
  EXPECT_EQ(first.taken_by_peers(), 0u) << "a refused one leaves nothing behind";
  ASSERT_TRUE(first.Register(kTotal / 2, kTotal)) << "less than before is always had";
  EXPECT_TRUE(second.Register(kTotal / 2, kTotal));
  EXPECT_FALSE(first.Register(kTotal / 2 + kMiB, kTotal));
}

TEST_F(NodeShareTest, UnitsAreRoundedUpAndEnd) {
  NodeShare first(Options());
  NodeShare second(Options());
  ASSERT_TRUE(first.Register(1, kTotal));
  second.Scan();
  EXPECT_EQ(second.taken_by_peers(), kMiB);
  ASSERT_TRUE(first.Register(uint64_t{1} << 60, UINT64_MAX)) << "more than a lock can say: it says the most";
  second.Scan();
  EXPECT_EQ(second.peers(), 1u);
  EXPECT_GT(second.taken_by_peers(), uint64_t{4} << 40);
}

TEST_F(NodeShareTest, AccountsAreApart) {
  NodeShare first(Options(0, "a"));
  NodeShare second(Options(0, "b"));
  ASSERT_TRUE(first.Register(kTotal, kTotal));
  second.Scan();
  EXPECT_EQ(second.peers(), 0u);
  EXPECT_TRUE(second.Register(kTotal, kTotal));
}

TEST_F(NodeShareTest, WithoutADirectoryAProcessIsAlone) {
  NodeShare share({{"/nowhere", ""}, "test", 4, kMiB});
  EXPECT_FALSE(share.entered());
  EXPECT_EQ(share.MostToTake(kTotal), kTotal / 4) << "a rank keeps to its part";
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
  share.Scan();
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
TEST_F(NodeShareTest, EightAtOnceGetTheirParts) {
  constexpr int kProcesses = 8;
  int parts[2];
  ASSERT_EQ(pipe(parts), 0);
  for (int i = 0; i < kProcesses; ++i) {
    Start([&] {
      std::thread([&, ranks = i % 2 == 0 ? kProcesses : 0] {
        NodeShare share(Options(ranks));
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

// Whatever it was doing: what one that was killed held is there for the others.
TEST_F(NodeShareTest, OneThatIsKilledAtAnyStepLeavesNothing) {
  void* const page =
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  std::atomic<int>* const steps = new (page) std::atomic<int>(0);
  for (int round = 0; round < 50; ++round) {
    *steps = 0;
    const pid_t holder = Start([&] {
      std::thread([&] {
        NodeShare share(Options());
        for (uint64_t i = 0;; ++i, ++*steps) share.Register(i % 8 * 100 * kMiB, kTotal);
      }).detach();
    });
    ASSERT_TRUE(tests::WaitUntil([&] { return *steps >= round; }));
    End(holder);
    children_.clear();
    NodeShare share(Options());
    EXPECT_EQ(share.peers(), 0u) << round;
    EXPECT_TRUE(share.Register(kTotal, kTotal)) << round;
  }
  munmap(page, sizeof(std::atomic<int>));
}

// All ask at the same moment for more than half: at most one gets it.
TEST_F(NodeShareTest, NoByteIsHeldTwiceByThoseWhoBeginTogether) {
  constexpr int kProcesses = 4, kRounds = 25;
  for (int round = 0; round < kRounds; ++round) {
    int start[2], answers[2];
    ASSERT_EQ(pipe(start), 0);
    ASSERT_EQ(pipe(answers), 0);
    for (int i = 0; i < kProcesses; ++i) {
      Start([&] {
        std::thread([&] {
          NodeShare share(Options());
          char begin;
          if (read(start[0], &begin, 1) != 1) _exit(1);
          const char held = share.Register(kTotal / 2 + kMiB, kTotal) ? 1 : 0;
          if (write(answers[1], &held, 1) != 1) _exit(1);
          pause();
        }).detach();
      });
    }
    ASSERT_EQ(write(start[1], "ssss", kProcesses), kProcesses);
    int holders = 0;
    for (int i = 0; i < kProcesses; ++i) {
      char held = 0;
      ASSERT_EQ(read(answers[0], &held, 1), 1);
      holders += held;
    }
    EXPECT_LE(holders, 1) << round;
    for (const int fd : {start[0], start[1], answers[0], answers[1]}) close(fd);
    for (const pid_t child : children_) End(child);
    children_.clear();
  }
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
