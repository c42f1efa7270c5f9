// IsReadable: whether this process can read memory at an address that somebody else named, without a signal when it
// cannot. Any thread, with any lock held; one system call for each page. What another thread unmaps meanwhile is its own
// affair.

#ifndef SPILLWAY_IO_OS_READABLE_H_
#define SPILLWAY_IO_OS_READABLE_H_

#include <cstdint>

namespace spillway::os {

// True when all of the bytes can be read; also when there are none.
bool IsReadable(uint64_t address, uint64_t bytes);

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_READABLE_H_
