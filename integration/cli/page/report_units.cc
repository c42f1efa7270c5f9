#include "integration/cli/page/report_units.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace spillway::integration {
namespace {

struct Scale {
  double factor;
  const char* name;
};

const std::vector<Scale>& ScalesOf(Unit unit) {
  static const std::vector<Scale> bytes = {
      {0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}, {1, "B"}};
  static const std::vector<Scale> rates = {
      {1e12, "TB/s"}, {1e9, "GB/s"}, {1e6, "MB/s"}, {1e3, "kB/s"}, {1, "B/s"}};
  static const std::vector<Scale> seconds = {{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}};
  static const std::vector<Scale> joules = {{3.6e6, "kWh"}, {1e3, "kJ"}, {1, "J"}};
  static const std::vector<Scale> plain = {{1, ""}};
  switch (unit) {
    case Unit::kBytes: return bytes;
    case Unit::kBytesPerSecond: return rates;
    case Unit::kSeconds: return seconds;
    case Unit::kJoules: return joules;
    default: return plain;
  }
}

const Scale& ScaleFor(double value, Unit unit) {
  for (const Scale& one : ScalesOf(unit)) {
    if (std::abs(value) >= one.factor * 0.9995) return one;
  }
  return ScalesOf(unit).back();
}

// Returns three figures, with commas from a thousand on: "1.23", "12.3", "123", "1,234".
std::string ThreeFigures(double value) {
  const double size = std::abs(value);
  if (size < 1e-9) return "0";
  if (size < 0.01) return absl::StrFormat("%.2g", value);
  if (size < 9.995) return absl::StrFormat("%.2f", value);
  if (size < 99.95) return absl::StrFormat("%.1f", value);
  const std::string digits = absl::StrFormat("%.0f", size);
  std::string text = value < 0 ? "-" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// Returns "1 h 02 min" or "2 min 05 s".
std::string LongTime(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%d h %02d min", whole / 3600, whole % 3600 / 60);
  return absl::StrFormat("%d d %02d h", whole / 86400, whole % 86400 / 3600);
}

}  // namespace

const char* NameOf(Unit unit) {
  switch (unit) {
    case Unit::kBytes: return "bytes";
    case Unit::kBytesPerSecond: return "bytes/s";
    case Unit::kSeconds: return "seconds";
    case Unit::kPercent: return "percent";
    case Unit::kCount: return "count";
    case Unit::kJoules: return "joules";
    case Unit::kDays: return "days";
    case Unit::kMoney: return "money";
  }
  return "";
}

std::string Shown(double value, Unit unit) {
  switch (unit) {
    case Unit::kSeconds:
      if (std::abs(value) < 119.5) break;
      return LongTime(value);
    case Unit::kPercent: return absl::StrCat(ThreeFigures(value), " %");
    case Unit::kDays: return absl::StrCat(ThreeFigures(value), " days");
    case Unit::kMoney:
      return std::abs(value) < 0.01 && value != 0 ? absl::StrFormat("%.2g", value)
                                                  : absl::StrFormat("%.2f", value);
    case Unit::kCount:
      return value == std::floor(value) && std::abs(value) < 100 ? absl::StrFormat("%.0f", value)
                                                                 : ThreeFigures(value);
    default: break;
  }
  if (value == 0) return absl::StrCat("0 ", unit == Unit::kSeconds ? "s" : ScalesOf(unit).back().name);
  const Scale& one = ScaleFor(value, unit);
  const bool whole = one.factor == 1 && unit == Unit::kBytes;
  return absl::StrCat(whole ? absl::StrFormat("%.0f", value) : ThreeFigures(value / one.factor), " ",
                      one.name);
}

AxisUnit AxisUnitFor(double most, Unit unit) {
  const Scale& one = most > 0 ? ScaleFor(most, unit) : ScalesOf(unit).front();
  return {one.factor, one.name};
}

}  // namespace spillway::integration
