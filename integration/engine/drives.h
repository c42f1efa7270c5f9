// Which drive a directory lies on, and how many of a node's ranks write to it: for the wear that a report tells
// of, and for `spillway doctor`. Any thread. What cannot be looked at is not known.

#ifndef SPILLWAY_INTEGRATION_ENGINE_DRIVES_H_
#define SPILLWAY_INTEGRATION_ENGINE_DRIVES_H_

#include <string>
#include <vector>

namespace spillway::integration {

// The whole disk below a file system's device ("nvme0n1" for "nvme0n1p2"); empty where it is not known.
// `root`: before "/sys", for tests.
std::string WholeDrive(const std::string& device, const std::string& root = "");

// The whole disk below a directory. A file system without one block device gives its number, as "0:43": what
// lies on the same one is reported together.
std::string DriveOf(const std::string& directory);

// How many of `ranks` ranks write to the drive of `directory`. Rank r spills into the directories
// rank_directories[r % size]; with no lists all spill where this one does. At least 1; 0: `ranks` is not known.
int RanksOnDrive(const std::string& directory, const std::vector<std::vector<std::string>>& rank_directories,
                 int ranks);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_DRIVES_H_
