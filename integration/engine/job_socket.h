// JobSocket lets programs of the same user ask a job for its state, as `spillway top` does. It is a socket
// named after the process in a folder of the user's own. A question is a line; the answer is everything up to
// the end of the connection. JobReports opens it, and the reporter's thread answers between two samples of
// the metrics, so a job has no thread for it.
//
// Other users' connections are closed unread. A peer that does not send or read is dropped after 0.1 s. If no
// socket can be created, the job goes on without one. AskJob is the other side.

#ifndef SPILLWAY_INTEGRATION_ENGINE_JOB_SOCKET_H_
#define SPILLWAY_INTEGRATION_ENGINE_JOB_SOCKET_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace spillway::integration {

// Returns $XDG_RUNTIME_DIR/spillway, or /tmp/spillway-UID if that variable is not set.
std::string JobSocketFolder();

class JobSocket {
 public:
  // Creates the folder (0700) if it does not exist, and removes names of processes that were killed. An error
  // names the path and what is wrong with it: a folder that others may enter is not used.
  static absl::StatusOr<std::unique_ptr<JobSocket>> Open(const std::string& folder);
  // Closes the socket, and removes its name.
  ~JobSocket();
  JobSocket(const JobSocket&) = delete;
  JobSocket& operator=(const JobSocket&) = delete;

  // Returns the descriptor, which is readable when a peer waits.
  int fd() const { return fd_; }
  // Answers the peers that wait with the result of `answer` for their question, which has no end of line. One
  // thread at a time.
  void Serve(const std::function<std::string(const std::string& question)>& answer);
  // Called at the end of the process, while another thread may be in Serve: nobody finds the socket any more.
  void RemoveName() const;
  // Called in a forked child: closes the socket, and leaves the name to the parent.
  void AbandonAfterFork();

 private:
  JobSocket(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_;  // -1: in a forked child
  const std::string path_;
};

// Returns the processes that have a socket in the folder, ascending.
std::vector<pid_t> JobsIn(const std::string& folder);

// Asks the job of process `pid`, and asks again if the connection ends without an answer. Returns NotFound if
// there is none, or if only its socket is left, which is removed then. Returns DeadlineExceeded if it does
// not answer within `limit`: it may be stopped.
absl::StatusOr<std::string> AskJob(const std::string& folder, pid_t pid, const std::string& question,
                                   std::chrono::milliseconds limit);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_JOB_SOCKET_H_
