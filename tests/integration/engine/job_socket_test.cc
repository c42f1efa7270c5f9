#include "integration/engine/job_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/wait_until.h"

namespace spillway::integration {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobSocketTest : public ::testing::Test {
 protected:
  JobSocketTest() {
    char name[] = "/tmp/job-socket-XXXXXX";
    above_ = mkdtemp(name);
    folder_ = above_ + "/spillway";
  }
  ~JobSocketTest() override {
    Stop();
    std::filesystem::remove_all(above_);
  }

  // A job that answers with what it was asked.
  void Start() {
    auto opened = JobSocket::Open(folder_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    socket_ = *std::move(opened);
    server_ = std::thread([this] {
      while (!stop_) {
        pollfd ready = {socket_->fd(), POLLIN, 0};
        if (poll(&ready, 1, 20) == 1)
          socket_->Serve([](const std::string& question) { return "you asked " + question; });
      }
    });
  }
  void Stop() {
    stop_ = true;
    if (server_.joinable()) server_.join();
    socket_ = nullptr;
  }
  absl::StatusOr<std::string> Ask(const std::string& question, milliseconds limit = milliseconds(20'000)) {
    return AskJob(folder_, getpid(), question, limit);
  }
  // As a job that was killed does.
  pid_t LeaveAName() const {
    const pid_t child = fork();
    if (child == 0) {
      auto opened = JobSocket::Open(folder_);
      _exit(opened.ok() ? (static_cast<void>(opened->release()), 0) : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return child;
  }
  int Connect() const {
    const std::string path = folder_ + "/" + std::to_string(getpid()) + ".sock";
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? fd : -1;
  }

  std::string above_, folder_;
  std::unique_ptr<JobSocket> socket_;
  std::atomic<bool> stop_{false};
  std::thread server_;
};

TEST_F(JobSocketTest, AQuestionHasAnAnswer) {
  EXPECT_THAT(JobsIn(folder_), IsEmpty());
  Start();
  EXPECT_THAT(JobsIn(folder_), ElementsAre(getpid()));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask("status").value(), "you asked status");
  struct stat info = {};
  ASSERT_EQ(stat((folder_ + "/" + std::to_string(getpid()) + ".sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  Stop();
  EXPECT_THAT(JobsIn(folder_), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(Ask("status").status()));
}

// On a busy machine the question may come later than the job waits for it.
TEST_F(JobSocketTest, WhoIsCutOffAsksAgain) {
  auto opened = JobSocket::Open(folder_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  std::thread job([&] {
    for (int cut_off = 0; cut_off < 3;) {
      const int peer = accept((*opened)->fd(), nullptr, nullptr);
      if (peer < 0) continue;
      ++cut_off;
      close(peer);
    }
    for (bool answered = false; !answered;) {
      (*opened)->Serve([&](const std::string& question) {
        answered = true;
        return "you asked " + question;
      });
    }
  });
  EXPECT_EQ(Ask("status").value(), "you asked status");
  job.join();
}

TEST_F(JobSocketTest, WhoSaysNothingOrTooMuchKeepsNobodyWaiting) {
  Start();
  const int silent = Connect(), half = Connect(), long_winded = Connect();
  ASSERT_EQ(write(half, "stat", 4), 4);
  const std::string much(100'000, 'x');
  EXPECT_GT(send(long_winded, much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL), 0);
  EXPECT_EQ(Ask("status").value(), "you asked status");
  for (const int fd : {silent, half, long_winded}) close(fd);
}

TEST_F(JobSocketTest, OfAJobThatWasKilledTheNameIsRemoved) {
  const pid_t child = LeaveAName();
  EXPECT_THAT(JobsIn(folder_), ElementsAre(child));
  EXPECT_TRUE(absl::IsNotFound(AskJob(folder_, child, "status", milliseconds(1000)).status()));
  EXPECT_THAT(JobsIn(folder_), IsEmpty());
}

TEST_F(JobSocketTest, TheNextJobRemovesTheNamesOfThoseThatWereKilled) {
  LeaveAName();
  Start();
  EXPECT_THAT(JobsIn(folder_), ElementsAre(getpid()));
  EXPECT_EQ(Ask("status").value(), "you asked status");
}

// Ranks begin at the same time, and each looks for names that nobody answers for.
TEST_F(JobSocketTest, JobsThatBeginTogetherLeaveEachOthersNames) {
  for (int round = 0; round < 30; ++round) {
    std::vector<pid_t> children;
    int end[2];
    ASSERT_EQ(pipe(end), 0);
    for (int i = 0; i < 8; ++i) {
      children.push_back(fork());
      if (children.back() != 0) continue;
      close(end[1]);
      const auto opened = JobSocket::Open(folder_);
      char nothing = 0;
      _exit(opened.ok() && read(end[0], &nothing, 1) == 0 ? 0 : 1);  // until the parent has looked
    }
    std::sort(children.begin(), children.end());
    // The names of the round before are there until somebody has looked, so their number says nothing.
    EXPECT_TRUE(tests::WaitUntil([&] {
      const std::vector<pid_t> found = JobsIn(folder_);
      return std::includes(found.begin(), found.end(), children.begin(), children.end());
    })) << round;
    for (const int fd : end) close(fd);
    for (const pid_t child : children) {
      int status = 1;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      EXPECT_EQ(entry.path().extension(), ".sock");
  }
}

TEST_F(JobSocketTest, AJobThatIsStoppedIsNotWaitedForForEver) {
  auto opened = JobSocket::Open(folder_);
  ASSERT_TRUE(opened.ok());
  const absl::Status asked = Ask("status", milliseconds(50)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(asked));
  EXPECT_THAT(std::string(asked.message()), HasSubstr("does not answer; it may be stopped"));
}

TEST_F(JobSocketTest, AForkedChildLeavesTheName) {
  Start();
  const pid_t child = fork();
  if (child == 0) {
    socket_->AbandonAfterFork();
    const bool closed = socket_->fd() < 0;
    static_cast<void>(socket_.release());
    _exit(closed ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Ask("status").value(), "you asked status");
}

TEST_F(JobSocketTest, AFolderThatOthersMayEnterIsRefused) {
  std::filesystem::create_directory(folder_);
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  EXPECT_THAT(std::string(JobSocket::Open(folder_).status().message()),
              HasSubstr("it is not a folder of this user alone"));
  std::filesystem::remove(folder_);
  std::filesystem::create_directory(above_ + "/elsewhere");
  std::filesystem::create_symlink(above_ + "/elsewhere", folder_);
  EXPECT_FALSE(JobSocket::Open(folder_).ok());
  std::filesystem::remove(folder_);
  std::ofstream(folder_) << "a file";
  EXPECT_FALSE(JobSocket::Open(folder_).ok());
  EXPECT_FALSE(JobSocket::Open(above_ + "/" + std::string(120, 'x')).ok()) << "too long for a socket";
}

TEST(JobSocketFolderTest, LiesInTheRuntimeDirectory) {
  const char* const before = getenv("XDG_RUNTIME_DIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(JobSocketFolder(), "/run/user/7/spillway");
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(JobSocketFolder(), "/tmp/spillway-" + std::to_string(geteuid()));
  if (before != nullptr) setenv("XDG_RUNTIME_DIR", kept.c_str(), 1);
}

}  // namespace
}  // namespace spillway::integration
