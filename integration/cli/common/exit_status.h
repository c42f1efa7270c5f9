// The exit statuses of the program beside 0, and the messages that go with them. All subcommands use it, on
// one thread; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_EXIT_STATUS_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_EXIT_STATUS_H_

#include "absl/status/status.h"

namespace spillway::integration {

inline constexpr int kWrongUse = 2;     // of the command line, or of a file that it names
inline constexpr int kCannotRun = 127;  // the program that was to be run cannot be run; as in shells

// Writes the status's message to standard error, as the program's; returns kWrongUse.
int Refuse(const absl::Status& status);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_EXIT_STATUS_H_
