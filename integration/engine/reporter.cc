#include "integration/engine/reporter.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "integration/engine/status_signal.h"
#include "io/os/log.h"
#include "io/os/thread.h"

namespace spillway::integration {
namespace {

constexpr double kShortestRateSeconds = 1;
constexpr auto kLongestFinish = std::chrono::milliseconds(350);

}  // namespace

double IterationRate::Update(const Figures& figures) {
  Sample now{figures.seconds, 0};
  uint64_t iteration_launches = 0;
  for (const DeviceFigures& device : figures.devices) {
    if (iteration_launches != 0 || device.plan_iteration_launches == 0) continue;
    iteration_launches = device.plan_iteration_launches;
    now.launches = device.stats.launches;
  }
  if (now.seconds - newer_.seconds >= kShortestRateSeconds) older_ = std::exchange(newer_, now);
  const double seconds = now.seconds - older_.seconds;
  if (iteration_launches == 0 || seconds < kShortestRateSeconds || now.launches < older_.launches) return 0;
  return static_cast<double>(now.launches - older_.launches) / static_cast<double>(iteration_launches) /
         seconds;
}

std::string Reporter::MetricsPath(const std::string& metrics_file, int local_rank) {
  return absl::StrReplaceAll(metrics_file,
                             {{"%p", absl::StrCat(::getpid())}, {"%r", absl::StrCat(local_rank)}});
}

Reporter::Reporter(const Options& options, std::function<Figures()> collect)
    : path_(MetricsPath(options.metrics_file, options.local_rank)),
      status_(options.status),
      advice_(options.advice),
      every_(options.every),
      look_(options.look),
      waits_(options.waits),
      collect_(std::move(collect)) {
  wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (status_ == StatusLine::kSignal) SetStatusWake(wake_);
  absl::StatusOr<os::Thread> thread = os::StartThread("spillway-report", [this] { Loop(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    os::ReportLine("neither metrics nor waits are reported: " + std::string(thread.status().message()));
  }
}

Reporter::~Reporter() { Finish(); }

void Reporter::Loop() {
  Time next = std::chrono::steady_clock::now() + every_;
  while (!stop_.load()) {
    if (waits_ != nullptr) waits_->Look();  // first: a wait may delay the rest
    const Figures figures = Collect();
    if (status_ == StatusLine::kSignal && TakeStatusRequest()) os::ReportLine(StatusText(figures));
    if (std::chrono::steady_clock::now() >= next) {
      WriteMetrics(figures);
      next = std::chrono::steady_clock::now() + every_;
    }
    WaitUntil(std::min(next, std::chrono::steady_clock::now() + look_));
  }
  ReportTheEnd();
  os::MutexLock lock(&mu_);
  ended_ = true;
  ended_cv_.NotifyAll();
}

// Returns earlier when the descriptor is written to. Without one (none was left) the end may come a little
// late.
void Reporter::WaitUntil(Time time) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(time - std::chrono::steady_clock::now());
  const int longest = wake_ >= 0 ? 10'000 : 100;
  pollfd descriptor = {wake_, POLLIN, 0};
  ::poll(&descriptor, 1, static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, longest)));
  uint64_t count = 0;
  if (wake_ >= 0 && ::read(wake_, &count, sizeof(count)) < 0) return;  // nobody wrote
}

Figures Reporter::Collect() {
  Figures figures = collect_();
  os::MutexLock lock(&mu_);
  figures.iterations_per_second = rate_.Update(figures);
  for (DeviceFigures& device : figures.devices) {
    IterationMeter& meter = meters_[device.device];
    meter.Look(figures.seconds, static_cast<uint32_t>(device.plan_iteration_launches), device.plan_departures,
               device.stats, device.forecast);
    device.steady = meter.Steady();
  }
  return figures;
}

void Reporter::WriteMetrics(const Figures& figures) {
  if (path_.empty()) return;
  const absl::Status status = WriteFileAtomically(path_, MetricsJson(figures));
  if (status.ok() || write_failed_) return;
  write_failed_ = true;  // reported once, not every 10 s
  os::Log(os::LogLevel::kWarn,
          absl::StrCat("cannot write SPILLWAY_METRICS: ", std::string(status.message())));
}

void Reporter::Finish() {
  if (stop_.exchange(true)) return;
  if (!thread_.joinable()) return ReportTheEnd();
  const uint64_t one = 1;
  if (wake_ >= 0 && ::write(wake_, &one, sizeof(one)) < 0)
    os::Log(os::LogLevel::kDebug, "the reporter is awake");
  const auto deadline = std::chrono::steady_clock::now() + kLongestFinish;
  bool ended = false;
  {
    os::MutexLock lock(&mu_);
    while (!ended_ && std::chrono::steady_clock::now() < deadline) {
      ended_cv_.WaitFor(&mu_, deadline - std::chrono::steady_clock::now());
    }
    ended = ended_;
  }
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
  // The descriptor stays open: a signal handler may be about to write to it.
}

void Reporter::ReportTheEnd() {
  const Figures figures = Collect();
  if (const std::string summary = Summary(figures); !summary.empty()) os::ReportLine(summary);
  for (const std::string& line : IterationLines(figures)) os::ReportLine(line);
  if (const std::string advice = AdviceLine(figures, advice_); !advice.empty()) os::ReportLine(advice);
  for (const DeviceFigures& device : figures.devices) {
    if (!device.observed) continue;
    for (const std::string& line : ObservationLines(device.device, *device.observed)) os::ReportLine(line);
  }
  WriteMetrics(figures);
}

void Reporter::AbandonAfterFork() {
  stop_.store(true);
  SetStatusWake(-1);
  if (wake_ >= 0) ::close(wake_);
}

}  // namespace spillway::integration
