#include "integration/engine/reporter.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "io/os/log.h"
#include "io/os/thread.h"

namespace spillway::integration {
namespace {

constexpr int kMetricsMillis = 10 * 1000;

}  // namespace

std::string Reporter::MetricsPath(const std::string& metrics_file, int local_rank) {
  return absl::StrReplaceAll(metrics_file,
                             {{"%p", absl::StrCat(::getpid())}, {"%r", absl::StrCat(local_rank)}});
}

Reporter::Reporter(const std::string& metrics_file, int local_rank, std::function<Figures()> collect)
    : path_(MetricsPath(metrics_file, local_rank)), collect_(std::move(collect)) {
  if (!path_.empty()) thread_ = os::StartThread("spillway-report", [this] { Loop(); });
}

Reporter::~Reporter() { Finish(); }

void Reporter::Loop() {
  while (WaitFor(kMetricsMillis)) WriteMetrics(collect_());
}

bool Reporter::WaitFor(int milliseconds) {
  os::MutexLock lock(&mu_);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (!stop_) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0) return true;
    changed_.WaitFor(&mu_, left);
  }
  return false;
}

void Reporter::WriteMetrics(const Figures& figures) {
  if (path_.empty()) return;
  const absl::Status status = WriteFileAtomically(path_, MetricsJson(figures));
  if (status.ok() || write_failed_) return;
  write_failed_ = true;  // said once, not every 10 s
  os::Log(os::LogLevel::kWarn,
          absl::StrCat("cannot write SPILLWAY_METRICS: ", std::string(status.message())));
}

void Reporter::Finish() {
  {
    os::MutexLock lock(&mu_);
    if (stop_) return;
    stop_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  const Figures figures = collect_();
  if (const std::string summary = Summary(figures); !summary.empty()) os::Announce(summary);
  WriteMetrics(figures);
}

}  // namespace spillway::integration
