// Conversion of errno to absl::Status, one for all system calls, and the two macros by which a function
// returns the error of another. Any thread.

#ifndef SPILLWAY_IO_OS_ERRNO_H_
#define SPILLWAY_IO_OS_ERRNO_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace spillway::os {

// Returns a status with the message "WHAT: text of the error (errno N)". ENOSPC, EDQUOT, EFBIG and ENOMEM
// become kResourceExhausted, ENOENT kNotFound, EINVAL kInvalidArgument, EPERM and EACCES kPermissionDenied,
// ENOSYS and EOPNOTSUPP kUnimplemented, EAGAIN and EINTR kUnavailable, and anything else kUnknown. `error` is
// a positive errno value.
absl::Status StatusFromErrno(int error, const std::string& what);

}  // namespace spillway::os

// Returns the status of `expression` from the function unless it is OK.
#define SPILLWAY_RETURN_IF_ERROR(expression)                  \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

#define SPILLWAY_CONCAT_INNER_(a, b) a##b
#define SPILLWAY_CONCAT_(a, b) SPILLWAY_CONCAT_INNER_(a, b)
// Assigns the value of a StatusOr to `target`, or returns its error from the function.
#define SPILLWAY_ASSIGN_OR_RETURN(target, expression) \
  SPILLWAY_ASSIGN_OR_RETURN_IMPL_(SPILLWAY_CONCAT_(status_or_, __LINE__), target, expression)
#define SPILLWAY_ASSIGN_OR_RETURN_IMPL_(result, target, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return result.status();                         \
  target = *std::move(result)

#endif  // SPILLWAY_IO_OS_ERRNO_H_
