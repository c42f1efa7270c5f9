// Descriptor: owns a file descriptor and closes it. For files and sockets that one function opens and
// finishes with. Owners of descriptors that threads share, or that a forked child gives up, close them
// themselves. Any thread; the result of close is ignored.

#ifndef SPILLWAY_IO_OS_DESCRIPTOR_H_
#define SPILLWAY_IO_OS_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace spillway::os {

class Descriptor {
 public:
  // -1 stands for no descriptor.
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  // The descriptor, still owned here.
  int get() const { return fd_; }
  // Gives up ownership: the caller closes the descriptor from now on.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_DESCRIPTOR_H_
