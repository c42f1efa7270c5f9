// How much of a file system stays free of spill files. The user may say it; the default leaves more in a pod of
// Kubernetes, whose kubelet ends pods once less than 10 % of the node's disk is free. Asked by spill files, by the
// check at the start and by `spillway doctor`. Any thread; nothing fails.

#ifndef SPILLWAY_IO_STORE_DISK_RESERVE_H_
#define SPILLWAY_IO_STORE_DISK_RESERVE_H_

#include <cstdint>
#include <string>

namespace spillway::io {

// Whether this process runs in a pod: by its control groups, or, where a namespace hides their names, by what the
// kubelet has mounted for it. `root`: before "/proc", for tests.
bool InPod(const std::string& root = "");

// The default reserve of a file system of so many bytes: max(5 %, 10 GiB), in a pod max(12 %, 10 GiB).
uint64_t DefaultReserve(uint64_t total_bytes, bool in_pod);

// What stays free of a file system of `total_bytes`: `reserve_bytes`, or for 0 the default of this process.
uint64_t ReserveOf(uint64_t total_bytes, uint64_t reserve_bytes);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_DISK_RESERVE_H_
