#include "io/os/errno.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace spillway::os {
namespace {

TEST(ErrnoTest, EachCodeHasItsMeaningAndItsNumberStays) {
  using absl::StatusCode;
  const std::vector<std::pair<int, StatusCode>> cases = {{ENOSPC, StatusCode::kResourceExhausted},
                                                         {EDQUOT, StatusCode::kResourceExhausted},
                                                         {EFBIG, StatusCode::kResourceExhausted},
                                                         {ENOMEM, StatusCode::kResourceExhausted},
                                                         {ENOENT, StatusCode::kNotFound},
                                                         {EINVAL, StatusCode::kInvalidArgument},
                                                         {EPERM, StatusCode::kPermissionDenied},
                                                         {EACCES, StatusCode::kPermissionDenied},
                                                         {ENOSYS, StatusCode::kUnimplemented},
                                                         {EOPNOTSUPP, StatusCode::kUnimplemented},
                                                         {EAGAIN, StatusCode::kUnavailable},
                                                         {EINTR, StatusCode::kUnavailable},
                                                         {EIO, StatusCode::kUnknown}};
  for (const auto& [error, code] : cases) {
    const absl::Status status = StatusFromErrno(error, "writing /disk/a");
    EXPECT_EQ(status.code(), code) << status;
    const std::string text(status.message());
    EXPECT_EQ(text.rfind("writing /disk/a: ", 0), 0u) << text;
    EXPECT_NE(text.find("(errno " + std::to_string(error) + ")"), std::string::npos) << text;
  }
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}

absl::Status Quarter(int value, int* quarter) {
  SPILLWAY_ASSIGN_OR_RETURN(const int half, Half(value));
  SPILLWAY_ASSIGN_OR_RETURN(*quarter, Half(half));
  SPILLWAY_RETURN_IF_ERROR(Half(*quarter).status());
  return absl::OkStatus();
}

TEST(ErrnoTest, TheMacrosReturnTheFirstError) {
  int quarter = 0;
  EXPECT_TRUE(Quarter(8, &quarter).ok());
  EXPECT_EQ(quarter, 2);
  for (const int odd_somewhere : {7, 6, 4}) EXPECT_FALSE(Quarter(odd_somewhere, &quarter).ok());
}

}  // namespace
}  // namespace spillway::os
