#include "integration/engine/job_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "integration/settings/environment.h"
#include "io/os/descriptor.h"
#include "io/os/errno.h"

namespace spillway::integration {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::milliseconds(100);  // of a job with a peer
constexpr int kAtOnce = 8;                                  // peers that are answered in one turn
constexpr size_t kLongestQuestion = 256;

// Returns whether the descriptor is ready before the deadline.
bool Await(int fd, short events, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  pollfd ready = {fd, events, 0};
  return poll(&ready, 1, static_cast<int>(std::max<int64_t>(0, left.count()))) == 1;
}

bool SendAll(int fd, std::string_view text, Clock::time_point deadline) {
  while (!text.empty()) {
    if (!Await(fd, POLLOUT, deadline)) return false;
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(0, sent)));
  }
  return true;
}

// Adds what comes until `ends` returns true, or the other side has sent everything. Returns false after the
// deadline or an error.
bool Receive(int fd, Clock::time_point deadline, const std::function<bool(const std::string&)>& ends,
             std::string* text) {
  std::array<char, 4096> part{};
  while (!ends(*text)) {
    if (!Await(fd, POLLIN, deadline)) return false;
    const ssize_t length = recv(fd, part.data(), part.size(), MSG_DONTWAIT);
    if (length == 0) return true;
    if (length < 0 && errno != EAGAIN && errno != EINTR) return false;
    text->append(part.data(), static_cast<size_t>(std::max<ssize_t>(0, length)));
  }
  return true;
}

bool IsOfThisUser(int fd) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return absl::InvalidArgumentError(absl::StrCat(path, ": too long for the name of a socket"));
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

std::string PathOf(const std::string& folder, pid_t pid) { return absl::StrCat(folder, "/", pid, ".sock"); }

// Creates the folder, which must be this user's: the owner of another could put a socket in the place of
// ours.
absl::Status MakeFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return os::StatusFromErrno(errno, folder);
  struct stat info = {};
  if (lstat(folder.c_str(), &info) != 0) return os::StatusFromErrno(errno, folder);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0)
    return absl::FailedPreconditionError(absl::StrCat(folder, ": it is not a folder of this user alone"));
  return absl::OkStatus();
}

// Returns 0, or the error of connect. EAGAIN: the job is there, and too many peers wait for it.
int Connect(int fd, const sockaddr_un& address) {
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
}

absl::StatusOr<int> NewSocket(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return os::StatusFromErrno(errno, path);
  return fd;
}

// Removes names of processes that were killed. A connection tells, not the process number, since another
// container may share the folder.
void RemoveStaleNames(const std::string& folder) {
  for (const pid_t pid : JobsIn(folder)) {
    const std::string path = PathOf(folder, pid);
    const absl::StatusOr<sockaddr_un> address = AddressOf(path);
    const absl::StatusOr<int> made = NewSocket(path);
    if (!made.ok()) return;
    const os::Descriptor probe(*made);
    if (address.ok() && Connect(probe.get(), *address) == ECONNREFUSED) unlink(path.c_str());
  }
}

}  // namespace

std::string JobSocketFolder() {
  const std::string runtime = EnvironmentValue("XDG_RUNTIME_DIR");
  if (!runtime.empty() && runtime.front() == '/') return runtime + "/spillway";
  return absl::StrCat("/tmp/spillway-", geteuid());
}

// ---- The job's side.

absl::StatusOr<std::unique_ptr<JobSocket>> JobSocket::Open(const std::string& folder) {
  SPILLWAY_RETURN_IF_ERROR(MakeFolder(folder));
  const std::string path = PathOf(folder, getpid());
  RemoveStaleNames(folder);
  SPILLWAY_ASSIGN_OR_RETURN(const int fd, NewSocket(path));
  os::Descriptor made(fd);
  // A name that refuses connections counts as that of a dead process, so the socket gets its name only once
  // it listens.
  const std::string unnamed = path + ".new";
  SPILLWAY_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(unnamed));
  unlink(unnamed.c_str());  // of an earlier process with this number
  if (bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(unnamed.c_str(), 0600) != 0 || listen(made.get(), kAtOnce) != 0 ||
      rename(unnamed.c_str(), path.c_str()) != 0)
    return os::StatusFromErrno(errno, path);
  return std::unique_ptr<JobSocket>(new JobSocket(made.Release(), path));
}

JobSocket::~JobSocket() {
  if (fd_ < 0) return;
  RemoveName();
  close(fd_);
}

void JobSocket::RemoveName() const { unlink(path_.c_str()); }

void JobSocket::Serve(const std::function<std::string(const std::string&)>& answer) {
  for (int i = 0; i < kAtOnce; ++i) {
    const os::Descriptor peer(accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (peer.get() < 0) {
      // The socket stays readable while a peer waits: without descriptors left this would go on at once,
      // forever.
      if (errno != EAGAIN) poll(nullptr, 0, static_cast<int>(kPatience.count()));
      return;
    }
    if (!IsOfThisUser(peer.get())) continue;
    const Clock::time_point deadline = Clock::now() + kPatience;
    std::string question;
    const auto asked = [](const std::string& text) {
      return text.find('\n') != std::string::npos || text.size() > kLongestQuestion;
    };
    if (!Receive(peer.get(), deadline, asked, &question)) continue;
    question.resize(std::min(question.size(), question.find('\n')));
    SendAll(peer.get(), answer(question), Clock::now() + kPatience);
  }
}

void JobSocket::AbandonAfterFork() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

// ---- The other side.

std::vector<pid_t> JobsIn(const std::string& folder) {
  std::vector<pid_t> jobs;
  std::error_code ignored;  // no folder, no jobs
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    pid_t pid = 0;
    if (entry.path().extension() == ".sock" && absl::SimpleAtoi(entry.path().stem().string(), &pid))
      jobs.push_back(pid);
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

absl::StatusOr<std::string> AskJob(const std::string& folder, pid_t pid, const std::string& question,
                                   std::chrono::milliseconds limit) {
  const std::string path = PathOf(folder, pid);
  SPILLWAY_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  const Clock::time_point deadline = Clock::now() + limit;
  const auto never = [](const std::string&) { return false; };
  for (; Clock::now() < deadline; poll(nullptr, 0, 10)) {
    SPILLWAY_ASSIGN_OR_RETURN(const int fd, NewSocket(path));
    const os::Descriptor made(fd);
    const int error = Connect(made.get(), address);
    if (error == ECONNREFUSED) unlink(path.c_str());  // its process was killed
    if (error == ECONNREFUSED || error == ENOENT)
      return absl::NotFoundError(absl::StrCat("process ", pid, " is not a job of yours under Spillway"));
    if (error == EAGAIN || error == EINTR) continue;  // its queue is full
    if (error != 0) return os::StatusFromErrno(error, path);
    // On a busy machine this process may stand still for longer than kPatience. The job has closed the
    // connection then, and is asked again.
    std::string answer;
    if (SendAll(made.get(), question + "\n", deadline) && Receive(made.get(), deadline, never, &answer) &&
        !answer.empty())
      return answer;
  }
  return absl::DeadlineExceededError(absl::StrCat("process ", pid, " does not answer; it may be stopped"));
}

}  // namespace spillway::integration
