#include "integration/simcuda/driver/core/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "integration/simcuda/driver/core/driver_api.h"

namespace simcuda {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr size_t kLongestLine = 640;

struct Log {
  std::atomic<bool> open{false};
  std::mutex mutex;  // guards everything below
  int file = -1;
  size_t used = 0;
  char buffer[kBufferBytes];
};
Log& GetLog() {
  static Log* log = new Log;
  return *log;
}

void WriteOutLocked(Log& log) {
  for (size_t done = 0; done < log.used;) {
    const ssize_t written = write(log.file, log.buffer + done, log.used - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;  // a full disk loses the log, not the job
    done += static_cast<size_t>(written);
  }
  log.used = 0;
}

}  // namespace

void OpenLog(const std::string& path) {
  Log& log = GetLog();  // made now: a fault's handler may not
  if (path.empty()) return;
  std::lock_guard<std::mutex> lock(log.mutex);
  log.file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log.file < 0) {
    std::fprintf(stderr, "simcuda: cannot write SIMCUDA_LOG=%s: %s\n", path.c_str(), std::strerror(errno));
    return;
  }
  log.open = true;
}

bool IsLogging() { return GetLog().open.load(std::memory_order_relaxed); }

void AppendLog(const LogLine& line) {
  Log& log = GetLog();
  std::lock_guard<std::mutex> lock(log.mutex);
  if (log.used + kLongestLine > kBufferBytes) WriteOutLocked(log);
  const int length =
      std::snprintf(log.buffer + log.used, kLongestLine, "%s\t%llu\t%d\t%lld\t%lld\t%llu\t%s\t%.500s\n",
                    line.kind, static_cast<unsigned long long>(line.stream_id), line.device,
                    static_cast<long long>(line.start_ns), static_cast<long long>(line.end_ns),
                    static_cast<unsigned long long>(line.bytes), line.direction, line.name);
  log.used += std::min(static_cast<size_t>(length), kLongestLine - 1);
}

void FlushLog() {
  if (!IsLogging()) return;
  std::lock_guard<std::mutex> lock(GetLog().mutex);
  WriteOutLocked(GetLog());
}

void FlushLogFromSignal() {
  if (!IsLogging() || !GetLog().mutex.try_lock()) return;
  WriteOutLocked(GetLog());
  GetLog().mutex.unlock();
}

}  // namespace simcuda

SIMCUDA_API void simcuda_flush_log(void) { simcuda::FlushLog(); }
