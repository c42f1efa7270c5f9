// Who owns a spill directory and the symbolic links on the way to it. Another user's directory may be a mount that
// shows that user what is written, and another user's link may lead anywhere tomorrow: both are refused, unless the
// process runs as root, which may use anybody's. Any thread.

#ifndef SPILLWAY_IO_STORE_DIRECTORY_OWNER_H_
#define SPILLWAY_IO_STORE_DIRECTORY_OWNER_H_

#include <string>

#include "absl/status/status.h"

namespace spillway::io {

// PermissionDenied, with words that go behind the directory's name, when `directory`, or a symbolic link on the way to
// it, belongs neither to this user nor to root. Owners that this user namespace does not know count as root: so a
// container sees directories of the machine. `directory_fd`: the directory as it was opened.
absl::Status CheckOwners(const std::string& directory, int directory_fd);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_DIRECTORY_OWNER_H_
