// Units of the figures that the subcommands take and print: bytes, whole and with a fraction, and seconds.
// Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_UNITS_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_UNITS_H_

#include <cstdint>

#include "policy/model/units.h"

namespace spillway::integration {

inline constexpr uint64_t kMebibyte = 1 << 20, kGibibyte = 1 << 30;
inline constexpr double kMiB = 0x1p20, kGiB = 0x1p30;  // for figures with a fraction

// Returns a simulated time in seconds.
inline double Seconds(policy::Nanos time) { return static_cast<double>(time) / 1e9; }

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_UNITS_H_
