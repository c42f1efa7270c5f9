// JobSocket: lets programs of the same user ask a job how it does, as `spillway top` asks. A socket named
// after the process in a folder of the user's own; a question is a line, the answer all that comes until the
// end. JobReports opens it, and the reporter's thread answers between two looks at the figures, so that a job
// has no thread for it.
//
// Other users' connections are closed unread. Who does not send or read is left after 0.1 s. Where no socket
// can be had, the job goes on without. AskJob is the other side.

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

// $XDG_RUNTIME_DIR/spillway, else /tmp/spillway-UID.
std::string JobSocketFolder();

class JobSocket {
 public:
  // Makes the folder (0700) where it is not there, and removes names of processes that were killed. An error
  // names the path and what is wrong with it: a folder that others may enter is not used.
  static absl::StatusOr<std::unique_ptr<JobSocket>> Open(const std::string& folder);
  // Closes, and removes the name.
  ~JobSocket();
  JobSocket(const JobSocket&) = delete;
  JobSocket& operator=(const JobSocket&) = delete;

  // Readable when somebody waits.
  int fd() const { return fd_; }
  // Answers who waits by what `answer` says to a question, which has no end of line. One thread at a time.
  void Serve(const std::function<std::string(const std::string& question)>& answer);
  // At the end of the process, while another thread may be in Serve: nobody finds it any more.
  void RemoveName() const;
  // In a forked child: closes, and leaves the name to its parent.
  void AbandonAfterFork();

 private:
  JobSocket(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_;  // -1: in a forked child
  const std::string path_;
};

// The processes that have a socket in the folder, ascending.
std::vector<pid_t> JobsIn(const std::string& folder);

// Asks the job of process `pid`. NotFound when there is none, also where only its socket is left: that is
// removed then. DeadlineExceeded when it does not answer within `limit`: it may be stopped.
absl::StatusOr<std::string> AskJob(const std::string& folder, pid_t pid, const std::string& question,
                                   std::chrono::milliseconds limit);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_JOB_SOCKET_H_
