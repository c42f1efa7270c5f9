// Files that are replaced as a whole: readers see the old file or the new one. The engine and the command use
// it for the files that they write for people. Thread-safe, and safe for any number of processes and hosts at
// once. An error names the path, and leaves the file that was there.

#ifndef SPILLWAY_INTEGRATION_REPORT_ATOMIC_FILE_H_
#define SPILLWAY_INTEGRATION_REPORT_ATOMIC_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace spillway::integration {

// The users who may read a new file. A file that exists already, and is this user's, keeps its permissions.
enum class Readers : uint8_t {
  kOwner,       // for files with the job's command line
  kOwnerAlone,  // likewise, whatever permissions the replaced file has
  kEveryone,    // as far as the umask allows it
};

// kNamed is for tests: the way for file systems that have no files without a name.
enum class Naming : uint8_t { kUnnamedIfPossible, kNamed };

// Writes `text` to a file without a name in the folder of `path`, which then takes the place of `path`. If
// the file system has no such files, it has a name that nobody can guess, ends in ".tmp", and stays behind if
// the process is killed while it writes. An error names `path`, and leaves the file that was there.
absl::Status WriteFileAtomically(const std::string& path, const std::string& text, Readers readers,
                                 Naming naming = Naming::kUnnamedIfPossible);

// Checks that a file can be created in the folder of `path`. Leaves nothing there.
absl::Status CheckFolderOf(const std::string& path);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_ATOMIC_FILE_H_
