// Facts about the machine, for the defaults of the engine and of `spillway doctor`: host memory that may be
// used, and a directory for spill files. Any thread may call it. A fact that cannot be read counts as not
// there; paths are arguments, so that tests bring their own.

#ifndef SPILLWAY_INTEGRATION_ENGINE_MACHINE_H_
#define SPILLWAY_INTEGRATION_ENGINE_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace spillway::integration {

// Returns the bytes of host memory that this process could still take: the least of MemAvailable in
// <root>/proc/meminfo and what the control groups (version 1 and 2) of the process and their parents leave. 0
// if nothing can be read.
uint64_t AvailableHostMemory(const std::string& root = "");

// The host memory of this machine, and the part that its control groups let this process take, used or not.
struct HostMemory {
  uint64_t machine_bytes = 0;    // 0: not known
  uint64_t group_bytes = 0;      // the least limit of the process's control groups and their parents; 0: none
  uint64_t available_bytes = 0;  // AvailableHostMemory; 0: not known
  std::string grows_by;  // what may add memory later, so that machine_bytes is no limit; empty: nothing
};
HostMemory WholeHostMemory(const std::string& root = "");

// A folder of <root>/sys/fs/cgroup with the limits of one control group.
struct ControlGroup {
  std::string folder;
  bool second_version = false;  // of the hierarchy that all controllers share
};
// Returns the control groups of this process that limit what `controller` ("memory", "cpu") gives out. Each
// comes before its parent, which limits, too. Empty if there are none.
std::vector<ControlGroup> ControlGroups(const std::string& controller, const std::string& root = "");

// Returns the first of `candidates` that is a writable directory on a disk (no tmpfs, no ramfs); empty if
// none is.
std::string FirstDiskDirectory(const std::vector<std::string>& candidates);

// Returns OK if spill files can be created in `path`; otherwise the reason.
absl::Status CheckDirectory(const std::string& path);

// Returns how many ranks of a node spill into `directory`. Of `ranks` ranks, rank r spills into the
// directories rank_directories[r % size]; with no lists all spill where this one does. A directory that
// cannot be looked up is shared with no other rank. At least 1: the caller itself.
int RanksThatShare(const std::string& directory,
                   const std::vector<std::vector<std::string>>& rank_directories, int ranks);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_MACHINE_H_
