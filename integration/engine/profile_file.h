// The file of SPILLWAY_PROFILE: reading it with checks, and replacing it. Another run has written it, so it
// is read only if this user alone could have written it, and if it is whole. JobProfile reads it at the first
// device and writes it on the reporter's thread; several ranks and jobs may at once: one whole file wins.

#ifndef SPILLWAY_INTEGRATION_ENGINE_PROFILE_FILE_H_
#define SPILLWAY_INTEGRATION_ENGINE_PROFILE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integration/profile/job_facts.h"

namespace spillway::integration {

// In the user's cache directory, one for each minor release of PyTorch and device; empty: there is no such
// directory.
std::string DefaultProfilePath(const ProfileKey& key);

// kNotFound: there is none. kDataLoss: it is damaged. kUnimplemented: it is of another version.
// kFailedPrecondition: it is not a file of this user's alone. Others: the system's. Each names the file.
absl::StatusOr<JobFacts> ReadProfile(const std::string& path);

// Makes the folder of the default path, and no other. A file, or whatever is at `path`, that is not this
// user's stays as it is: kFailedPrecondition. Others: the system's.
absl::Status WriteProfile(const std::string& path, const std::string& text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_PROFILE_FILE_H_
