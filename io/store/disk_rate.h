// Disk rates: the rates of a directory that is written and read for seconds, with the engine and the requests
// that a job would use. MeasureDisk writes first, then reads back from the start, and compares. If the time
// is long enough, a drive's own cache fills up, and the rate of the second half of the time shows it.
// `spillway doctor` calls it, on its own thread alone, for as long as the options say. The file has no name
// and is gone at the end, whatever ends the process. It fails when the directory cannot be used or has no
// space beyond the reserve.

#ifndef SPILLWAY_IO_STORE_DISK_RATE_H_
#define SPILLWAY_IO_STORE_DISK_RATE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "io/engine/engine.h"

namespace spillway::io {

struct DirectionRate {
  uint64_t bytes = 0;
  double seconds = 0;
  double late_bytes_per_second = 0;  // in the second half of the time
  double PerSecond() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

// Reason for the end of the writing: its time; the end of the space beside the reserve; or a limit that
// leaves space, which is cap_bytes or the system's limit of a file's size.
enum class WriteEnd : uint8_t { kTime, kSpace, kLimit };

struct DiskRates {
  DirectionRate write;
  DirectionRate read;
  WriteEnd end = WriteEnd::kTime;
};

struct DiskProgress {
  IoOp op = IoOp::kWrite;
  double part = 0;  // of this direction, 0 to 1
  uint64_t bytes = 0;
  double seconds = 0;
};

struct DiskRateOptions {
  std::chrono::nanoseconds time = std::chrono::seconds(10);  // of both directions together
  // Upper limit of the bytes written; 0 for none. On file systems where a file can grow only by writing,
  // those writes count as well.
  uint64_t cap_bytes = 0;
  uint64_t reserve_bytes = 0;  // left free in the file system; 0: the default of spill stores
  std::function<void(const DiskProgress&)> progress;  // some ten times a second, and at each direction's end
};

absl::StatusOr<DiskRates> MeasureDisk(const std::string& path, const DiskRateOptions& options);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_DISK_RATE_H_
