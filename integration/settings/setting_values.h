// Readers of the values that settings take: sizes, switches, lists of directories. Pure functions of their
// text; each error lists the accepted values. settings.def has the names and meanings of the settings.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_SETTING_VALUES_H_
#define SPILLWAY_INTEGRATION_SETTINGS_SETTING_VALUES_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/engine/fault_engine.h"
#include "io/engine/model_engine.h"

namespace spillway::integration {

// Bytes, or a share of something that is known later.
struct Size {
  uint64_t bytes = 0;
  double percent = 0;  // above 0: this share instead of `bytes`

  uint64_t Of(uint64_t whole) const {
    return percent > 0 ? static_cast<uint64_t>(static_cast<double>(whole) * percent / 100.0) : bytes;
  }
  friend bool operator==(const Size&, const Size&) = default;
};

// Bytes of one chunk; a smaller size fits none.
constexpr uint64_t kMinSize = uint64_t{2} << 20;

enum class Percent : uint8_t { kAccepted, kRefused };

// Reads "20GiB", "500 MB", "1.5TiB", "4096" (bytes); with kAccepted also "60%" (above 0, at most 100). Units:
// B, KB, MB, GB, TB are powers of 1000; KiB .. TiB, and K, M, G, T alone, of 1024. Case does not matter.
// Parts of a byte are refused: a number without a unit is whole, and any above 0 is a byte at least.
absl::StatusOr<Size> ParseSize(std::string_view text, Percent percent);

// Reads on, off, 1, 0, in any case.
absl::StatusOr<bool> ParseSwitch(std::string_view text);

// Returns the place of `text` in `words`, in any case.
absl::StatusOr<size_t> ParseWord(std::string_view text, const std::vector<std::string>& words);

struct DirectoryEntry {
  std::string path;        // absolute
  uint64_t cap_bytes = 0;  // 0: no cap of its own; otherwise kMinSize at least
  friend bool operator==(const DirectoryEntry&, const DirectoryEntry&) = default;
};

// Reads "a,b:2TiB;c": a list of directories for each rank of the node, ranks separated by ';', a cap after
// the last ':'. "none" yields one empty list.
absl::StatusOr<std::vector<std::vector<DirectoryEntry>>> ParseDirectories(std::string_view text);

// Reads "30s", "5min", "1.5h", "500ms": from a millisecond to a year. "none" yields zero.
absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// Bytes that may be written in a time.
struct WriteLimit {
  uint64_t bytes = 0;  // 0: nothing may be written
  std::chrono::nanoseconds interval{};
  friend bool operator==(const WriteLimit&, const WriteLimit&) = default;
};

// Reads "2TB/day", "100GB/h": a size from kMinSize on and one of hour, day, week, month (30 days) or its
// first letter. "0" yields 0 bytes, "none" yields no limit.
absl::StatusOr<std::optional<WriteLimit>> ParseWriteLimit(std::string_view text);

// Reads "read:1.2e9,write:800MB,latency:80us": bytes a second (1e6 to 1e12) and a time (ns, us, ms or s; up
// to a second), each at most once and at least one of them. An '@' and the number of a directory, from 0, may
// stand before each, as in "latency:80us,0@read:100MB,1@read:300MB". "none" yields models without limits.
absl::StatusOr<io::DiskModels> ParseDiskModels(std::string_view text);

// Reads "read:EIO:3s:30ms,1@all:silence:10s:70s": which requests fail (read, write or all), how (an errno by
// name, or silence), from which time on after the directory's first request, and for how long. The number of
// a directory, from 0, may stand before an '@'. "none" yields no faults.
absl::StatusOr<std::vector<io::DriveFault>> ParseDriveFaults(std::string_view text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_SETTING_VALUES_H_
