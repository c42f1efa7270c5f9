#include "integration/engine/bytes_text.h"

#include <iterator>

#include "absl/strings/str_format.h"

namespace spillway::integration {

std::string BytesText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%d B", bytes) : absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

}  // namespace spillway::integration
