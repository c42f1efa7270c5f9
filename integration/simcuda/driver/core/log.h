// The log of launches and copies that tests read back (SIMCUDA_LOG=FILE): one line each, in order of
// completion. Columns, separated by tabs: kind, stream id, device, start ns, end ns, bytes, direction, name.
// Times are those of CLOCK_MONOTONIC. Lines are kept in memory and written when there are many, at exit, and
// before a loud stop. Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_LOG_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_LOG_H_

#include <cstdint>
#include <string>

namespace simcuda {

struct LogLine {
  const char* kind = "";  // kernel, copy, memset
  uint64_t stream_id = 0;
  int device = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint64_t bytes = 0;
  const char* direction = "-";  // htod, dtoh, dtod, htoh
  const char* name = "-";
};

// An empty path: no log. Creates the file, or reports on standard error why not.
void OpenLog(const std::string& path);
bool IsLogging();
void AppendLog(const LogLine& line);
void FlushLog();
// For a signal handler: gives up if the log is in use.
void FlushLogFromSignal();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_LOG_H_
