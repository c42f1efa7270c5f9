// A number of bytes as text, for lines of the log, the summary and `spillway doctor`. It is for people alone:
// JSON and metrics have the number itself. Any thread; nothing fails.

#ifndef SPILLWAY_IO_OS_BYTES_TEXT_H_
#define SPILLWAY_IO_OS_BYTES_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

namespace spillway::os {

// Returns "1.50 GiB", for example; whole bytes below 1 KiB. Beyond 1023 TiB the number grows instead of the
// unit.
inline std::string BytesText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};  // powers of 1024
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[64];  // the longest is that of 2^64 - 1 bytes: 16777216.00 TiB
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_BYTES_TEXT_H_
