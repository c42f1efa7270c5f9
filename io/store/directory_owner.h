// Checks the owner of a spill directory and of the symbolic links on the way to it. Another user's directory
// may be a mount that shows that user the written bytes, and another user's link may lead anywhere tomorrow.
// Both are refused, unless the process runs as root, which may use anybody's. Any thread.

#ifndef SPILLWAY_IO_STORE_DIRECTORY_OWNER_H_
#define SPILLWAY_IO_STORE_DIRECTORY_OWNER_H_

#include <string>

#include "absl/status/status.h"

namespace spillway::io {

// Fails with PermissionDenied, and words that go behind the directory's name, when `directory`, or a symbolic
// link on the way to it, belongs neither to this user nor to root. Owners that this user namespace does not
// know count as root, because a container sees directories of the machine in this way. `directory_fd` is the
// opened directory.
absl::Status CheckOwners(const std::string& directory, int directory_fd);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_DIRECTORY_OWNER_H_
