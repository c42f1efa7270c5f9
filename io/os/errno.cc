#include "io/os/errno.h"

#include <cerrno>
#include <cstring>

namespace spillway::os {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM: return absl::StatusCode::kResourceExhausted;
    case ENOENT: return absl::StatusCode::kNotFound;
    case EINVAL: return absl::StatusCode::kInvalidArgument;
    case EPERM:
    case EACCES: return absl::StatusCode::kPermissionDenied;
    case ENOSYS:
    case EOPNOTSUPP: return absl::StatusCode::kUnimplemented;
    case EAGAIN:
    case EINTR: return absl::StatusCode::kUnavailable;
    default: return absl::StatusCode::kUnknown;
  }
}

}  // namespace

absl::Status StatusFromErrno(int error, const std::string& what) {
  char buffer[128];
  const char* text = strerror_r(error, buffer, sizeof(buffer));
  return absl::Status(CodeOf(error), what + ": " + text + " (errno " + std::to_string(error) + ")");
}

}  // namespace spillway::os
