// Descriptor: owns a file descriptor and closes it. For files and sockets that a function opens and is done
// with; what threads share, or a forked child gives up, closes its own. Any thread; what close answers is not
// looked at.

#ifndef SPILLWAY_IO_OS_DESCRIPTOR_H_
#define SPILLWAY_IO_OS_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace spillway::os {

class Descriptor {
 public:
  // -1: there is none.
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  // The descriptor, still owned here.
  int get() const { return fd_; }
  // The caller closes it from now on.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_DESCRIPTOR_H_
