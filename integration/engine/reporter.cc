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

constexpr int kLookMillis = 200;           // until spilling has started
constexpr int kMetricsMillis = 10 * 1000;  // afterwards, and for the file

}  // namespace

std::string Reporter::MetricsPath(const std::string& metrics_file, int local_rank) {
  return absl::StrReplaceAll(metrics_file,
                             {{"%p", absl::StrCat(::getpid())}, {"%r", absl::StrCat(local_rank)}});
}

Reporter::Reporter(const std::string& metrics_file, int local_rank, std::function<Figures()> collect)
    : path_(MetricsPath(metrics_file, local_rank)), collect_(std::move(collect)) {
  thread_ = os::StartThread("spillway-report", [this] { Loop(); });
}

Reporter::~Reporter() { Finish(); }

void Reporter::Loop() {
  int since_metrics = 0;
  while (WaitFor(spilling_ ? kMetricsMillis : kLookMillis)) {
    since_metrics += spilling_ ? kMetricsMillis : kLookMillis;
    const bool due = since_metrics >= kMetricsMillis && !path_.empty();
    if (spilling_ && !due) continue;
    const Figures figures = collect_();
    AnnounceSpilling(figures);
    if (due) {
      WriteMetrics(figures);
      since_metrics = 0;
    }
  }
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

void Reporter::AnnounceSpilling(const Figures& figures) {
  for (const DeviceFigures& device : figures.devices) {
    if (spilling_ || device.stats.evictions == 0) continue;
    os::Announce(SpillingStarts(device));
    spilling_ = true;
  }
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
  thread_.join();
  const Figures figures = collect_();
  AnnounceSpilling(figures);
  if (const std::string summary = Summary(figures); !summary.empty()) os::Announce(summary);
  WriteMetrics(figures);
}

}  // namespace spillway::integration
