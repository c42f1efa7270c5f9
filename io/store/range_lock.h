// A lock on a range of bytes, as fcntl takes it. NodeShare and DiskOrder use the positions of their locks to
// show what a process has. They are locks of an open file (F_OFD_...): the system drops them when the file is
// closed for good, however a process ends. Any thread; nothing fails.

#ifndef SPILLWAY_IO_STORE_RANGE_LOCK_H_
#define SPILLWAY_IO_STORE_RANGE_LOCK_H_

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>

namespace spillway::io {

// `type` is F_RDLCK, F_WRLCK or F_UNLCK; 0 bytes extend to the end of all offsets.
inline struct flock LockOf(short type, int64_t from, int64_t bytes) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = from;
  lock.l_len = bytes;
  return lock;
}

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_RANGE_LOCK_H_
