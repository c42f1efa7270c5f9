#include "io/os/log.h"

#include <atomic>
#include <deque>

#include "io/os/clock.h"
#include "io/os/log_file.h"
#include "io/os/sync.h"

namespace spillway::os {
namespace {

constexpr int kLinesPerSecond = 20;
constexpr size_t kLinesKept = 20;

// Written by SetLogLevel, read by every Log. A level that is seen late costs only a line.
std::atomic<int> log_level{static_cast<int>(LogLevel::kWarn)};

struct RateLimit {
  Mutex mu{LockRank::kLog};
  int64_t second ABSL_GUARDED_BY(mu) = 0;
  int lines ABSL_GUARDED_BY(mu) = 0;
  int left_out ABSL_GUARDED_BY(mu) = 0;
};

RateLimit& Limit() {
  static RateLimit* const limit = new RateLimit;
  return *limit;
}

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kError: return "error";
    case LogLevel::kWarn: return "warning";
    case LogLevel::kInfo: return "info";
    default: return "debug";
  }
}

std::string& Place() {
  static std::string* const place = new std::string;
  return *place;
}

std::string Head() { return Place().empty() ? "spillway: " : "spillway: " + Place() + ": "; }

struct KeptLines {
  Mutex mu{LockRank::kLog};
  std::deque<std::string> lines ABSL_GUARDED_BY(mu);
};

KeptLines& Kept() {
  static KeptLines* const kept = new KeptLines;
  return *kept;
}

// Does not wait for the lock, which a forked child may have inherited.
void Keep(const std::string& line) {
  KeptLines& kept = Kept();
  if (!kept.mu.TryLock()) return;
  if (kept.lines.size() == kLinesKept) kept.lines.pop_front();
  kept.lines.push_back(line);
  kept.mu.Unlock();
}

// `name` is the level's, if the line itself begins with it.
void WriteLine(const char* level, const char* name, const std::string& text) {
  const std::string line = Head() + name + text;
  Keep(line);
  WriteLogLine(level, text, line);
}

}  // namespace

void SetLogLevel(LogLevel level) { log_level.store(static_cast<int>(level)); }

void Log(LogLevel level, const std::string& text) {
  if (static_cast<int>(level) > log_level.load()) return;
  int left_out = 0;
  if (level != LogLevel::kError) {
    RateLimit& limit = Limit();
    MutexLock lock(&limit.mu);
    const int64_t second = Clock::System()->NowNanos() / kSecond;
    if (second != limit.second) {
      limit.second = second;
      limit.lines = 0;
    }
    if (++limit.lines > kLinesPerSecond) {
      ++limit.left_out;
      return;
    }
    left_out = limit.left_out;
    limit.left_out = 0;
  }
  const std::string name = LevelName(level);
  const std::string more = left_out > 0 ? " (" + std::to_string(left_out) + " lines left out)" : "";
  WriteLine(name.c_str(), (name + " ").c_str(), text + more);
}

void ReportLine(const std::string& text) {
  if (log_level.load() != static_cast<int>(LogLevel::kOff)) WriteLine("notice", "", text);
}

void ReportFatal(const std::string& text) { WriteLine("fatal", "", text); }

std::vector<std::string> LastLines() {
  KeptLines& kept = Kept();
  const MutexLock lock(&kept.mu);
  return {kept.lines.begin(), kept.lines.end()};
}

void SetLogPlace(const std::string& place) { Place() = place; }

}  // namespace spillway::os
