// IsReadable: whether this process can read memory at an address that somebody else named, without a signal
// when it cannot. Any thread, with any lock; makes one system call for each page. It gives no protection
// against another thread that unmaps the memory meanwhile.

#ifndef SPILLWAY_IO_OS_READABLE_H_
#define SPILLWAY_IO_OS_READABLE_H_

#include <cstdint>

namespace spillway::os {

// True when all of the bytes can be read, and when there are none.
bool IsReadable(uint64_t address, uint64_t bytes);

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_READABLE_H_
