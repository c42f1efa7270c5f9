// The drive that a directory lies on, and the number of a node's ranks that write to it: for the wear that a
// report shows, and for `spillway doctor`. Any thread may call it. A drive that cannot be looked up is not
// known.

#ifndef SPILLWAY_INTEGRATION_ENGINE_DRIVES_H_
#define SPILLWAY_INTEGRATION_ENGINE_DRIVES_H_

#include <string>
#include <vector>

namespace spillway::integration {

// Returns the whole disk below a file system's device ("nvme0n1" for "nvme0n1p2"); empty if not known.
// `root`: prefix of "/sys", for tests.
std::string WholeDrive(const std::string& device, const std::string& root = "");

// Returns the whole disk below a directory. A file system without a block device gives its number, as "0:43":
// directories on the same file system are reported together.
std::string DriveOf(const std::string& directory);

// Returns how many of `ranks` ranks write to the drive of `directory`. Rank r spills into the directories
// rank_directories[r % size]; with no lists all spill where this one does. At least 1; 0 if `ranks` is not
// known.
int RanksOnDrive(const std::string& directory, const std::vector<std::vector<std::string>>& rank_directories,
                 int ranks);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_DRIVES_H_
