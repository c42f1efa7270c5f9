// Sizes and rates as the program's options give them: "40GiB", "15.754e9", "3.2GB/s". For the subcommands
// that take such options. Pure; a text of another form is InvalidArgument.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_QUANTITIES_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_QUANTITIES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "policy/model/units.h"

namespace spillway::integration {

// Reads "40GiB", "128GB", "15.754e9" as a number of bytes (or bytes per second); positive or 0. GiB is 2^30,
// GB is 10^9.
absl::StatusOr<double> ParseQuantity(const std::string& text);

// Read `text`, the value of the option called `option`, into `value`: bytes, or bytes per second (at least
// 1e6, below which times leave the range of nanoseconds). An error names the option and what is accepted.
absl::Status ReadSize(absl::string_view option, const std::string& text, policy::Bytes* value);
absl::Status ReadRate(absl::string_view option, const std::string& text, double* value);

// Returns InvalidArgument: "`option`=`value` is invalid; expected: `accepted`".
absl::Status NotAccepted(absl::string_view option, absl::string_view value, absl::string_view accepted);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_QUANTITIES_H_
