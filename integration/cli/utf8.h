// Text of unknown origin made fit for JSON and a page: commands, paths and kernels' names are whatever bytes
// the job had. For `spillway report`. Pure; nothing fails.

#ifndef SPILLWAY_INTEGRATION_CLI_UTF8_H_
#define SPILLWAY_INTEGRATION_CLI_UTF8_H_

#include <string>

#include "absl/strings/string_view.h"

namespace spillway::integration {

// `text` with U+FFFD in place of each byte that is no part of a character in UTF-8.
std::string ValidUtf8(absl::string_view text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_UTF8_H_
