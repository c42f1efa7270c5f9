// The part of a file system that stays free of spill files. The user may set it. The default leaves more in a
// pod of Kubernetes, whose kubelet ends pods once less than 10 % of the node's disk is free. Spill files, the
// check at the start and `spillway doctor` ask for it. Any thread; nothing fails.

#ifndef SPILLWAY_IO_STORE_DISK_RESERVE_H_
#define SPILLWAY_IO_STORE_DISK_RESERVE_H_

#include <cstdint>
#include <string>

namespace spillway::io {

// Whether this process runs in a pod: by its control groups, or, if a namespace hides their names, by the
// mounts that the kubelet has made for it. `root` is a prefix of "/proc", for tests.
bool InPod(const std::string& root = "");

// The default reserve of a file system of `total_bytes`: max(5 %, 10 GiB), in a pod max(12 %, 10 GiB).
uint64_t DefaultReserve(uint64_t total_bytes, bool in_pod);

// The reserve of a file system of `total_bytes`: `reserve_bytes`, or this process's default if that is 0.
uint64_t ReserveOf(uint64_t total_bytes, uint64_t reserve_bytes);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_DISK_RESERVE_H_
