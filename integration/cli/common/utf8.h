// Makes text of unknown origin fit for JSON, a page and a terminal: commands, paths and kernels' names are
// whatever bytes the job had. For the commands that show a job. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_UTF8_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_UTF8_H_

#include <string>

#include "absl/strings/string_view.h"

namespace spillway::integration {

// Returns `text` with U+FFFD in place of each byte that is no part of a character in UTF-8.
std::string ValidUtf8(absl::string_view text);

// Returns `text`, valid UTF-8, with '?' in place of each control character, which a terminal would obey.
std::string WithoutControls(absl::string_view text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_UTF8_H_
