// Files that are replaced as a whole: readers see the old file or the new one. For what the engine and the
// command write for people. Any thread, any number of processes and hosts at once. An error names the path,
// and leaves the file that was there.

#ifndef SPILLWAY_INTEGRATION_ENGINE_ATOMIC_FILE_H_
#define SPILLWAY_INTEGRATION_ENGINE_ATOMIC_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace spillway::integration {

// Who may read a file that is new. One that is there, and this user's, keeps the permissions that it has.
enum class Readers : uint8_t {
  kOwner,       // what has the job's command line
  kOwnerAlone,  // likewise, whatever permissions the file has that is replaced
  kEveryone,    // as far as the umask lets them
};

// For tests: the way of file systems that have no files without a name.
enum class Naming : uint8_t { kUnnamedIfPossible, kNamed };

// Writes `text` to a file without a name in the folder of `path`, which then takes the place of `path`. Where the
// file system has no such files, it has a name that nobody can guess, ends in ".tmp", and stays behind if the
// process is killed while it writes. An error names `path`, and leaves the file that was there.
absl::Status WriteFileAtomically(const std::string& path, const std::string& text, Readers readers,
                                 Naming naming = Naming::kUnnamedIfPossible);

// Whether a file can be made in the folder of `path`. Leaves nothing there.
absl::Status CheckFolderOf(const std::string& path);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_ATOMIC_FILE_H_
