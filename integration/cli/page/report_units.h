// Figures as people read them: "12.3 GiB", "1 h 2 min", "4.56 %". For the pages of `spillway report`. Pure;
// no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_UNITS_H_
#define SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_UNITS_H_

#include <string>

namespace spillway::integration {

enum class Unit {
  kBytes,           // GiB are 2^30
  kBytesPerSecond,  // GB are 10^9
  kSeconds,
  kPercent,
  kCount,
  kJoules,
  kDays,
  kMoney,
};

// Returns the name of a unit in JSON: "bytes", "bytes/s", "seconds", "percent", ...
const char* NameOf(Unit unit);

// Returns three figures and the unit: "12.3 GiB", "456 ms", "2 h 05 min", "1,234".
std::string Shown(double value, Unit unit);

// The unit that suits an axis up to `most`: the divisor of the values, and its name.
struct AxisUnit {
  double factor = 1;
  std::string name;
};
AxisUnit AxisUnitFor(double most, Unit unit);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_PAGE_REPORT_UNITS_H_
