#include "integration/engine/reporter.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "integration/engine/request_signals.h"
#include "io/os/log.h"
#include "io/os/thread.h"

namespace spillway::integration {
namespace {

constexpr double kShortestRateSeconds = 1;

}  // namespace

double IterationRate::Update(const Metrics& metrics) {
  Sample now{metrics.seconds, 0};
  uint64_t iteration_launches = 0;
  for (const DeviceMetrics& device : metrics.devices) {
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

Reporter::Reporter(const Options& options, std::function<Metrics()> collect)
    : options_(options),
      collect_(std::move(collect)),
      metrics_("SPILLWAY_METRICS", OutputFile::Expand(options.metrics_file, options.local_rank),
               Readers::kEveryone) {
  wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (options_.status == StatusLine::kSignal || options_.on_pause_signal) SetRequestWake(wake_);
  absl::StatusOr<os::Thread> thread = os::StartThread("spillway-report", [this] { Loop(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    os::ReportLine("neither metrics nor waits are reported: " + std::string(thread.status().message()));
  }
}

Reporter::~Reporter() { Finish(); }

void Reporter::Loop() {
  // A job that is killed early leaves files, too.
  Time next = std::chrono::steady_clock::now() + std::min(options_.first, options_.every);
  while (!stop_.load()) {
    if (options_.waits != nullptr) options_.waits->Scan();  // first, since a wait may delay the rest
    const Metrics metrics = Collect();
    if (options_.after_sample) options_.after_sample(metrics);
    if (options_.status == StatusLine::kSignal && TakeRequest(SignalRequest::kStatus))
      os::ReportLine(StatusText(metrics));
    if (options_.on_pause_signal && TakeRequest(SignalRequest::kPause)) options_.on_pause_signal();
    if (std::chrono::steady_clock::now() >= next) {
      WriteFiles(metrics, /*ended=*/false);
      next = std::chrono::steady_clock::now() + options_.every;
    }
    WaitAndSampleOften(std::min(next, std::chrono::steady_clock::now() + options_.sample_every));
  }
  ReportTheEnd();
  os::MutexLock lock(&mu_);
  ended_ = true;
  ended_cv_.NotifyAll();
}

void Reporter::WaitAndSampleOften(Time time) {
  if (!options_.sample_often) return (void)WaitUntil(time);
  bool woken = false;
  while (!woken && !stop_.load() && std::chrono::steady_clock::now() < time) {
    options_.sample_often();
    woken = WaitUntil(std::min(time, std::chrono::steady_clock::now() + options_.often));
  }
}

// Returns true if the wake descriptor was written to, which ends the wait. Visitors do not end it.
bool Reporter::WaitUntil(Time time) {
  do {
    if (WaitOnce(time)) return true;
  } while (!stop_.load() && std::chrono::steady_clock::now() < time);
  return false;
}

// The end may come a little late without a wake descriptor (none was left).
bool Reporter::WaitOnce(Time time) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(time - std::chrono::steady_clock::now());
  const int longest = wake_ >= 0 ? 10'000 : 100;
  std::array<pollfd, 2> descriptors = {pollfd{wake_, POLLIN, 0}, {options_.visitors, POLLIN, 0}};
  ::poll(descriptors.data(), descriptors.size(),
         static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, longest)));
  if ((descriptors[1].revents & POLLIN) != 0) options_.serve(this);
  uint64_t count = 0;
  return wake_ >= 0 && ::read(wake_, &count, sizeof(count)) > 0;
}

// The job has done something else for a while at the end of the process, so the metrics of its iterations
// stay as they were.
Metrics Reporter::Collect(bool ended) {
  Metrics metrics = collect_();
  os::MutexLock lock(&mu_);
  metrics.iterations_per_second = rate_.Update(metrics);
  for (DeviceMetrics& device : metrics.devices) {
    IterationMeter& meter = meters_[device.device];
    if (!ended || meter.Steady().iterations == 0) {
      meter.Sample(metrics.seconds, static_cast<uint32_t>(device.plan_iteration_launches),
                   device.plan_departures, device.stats, device.forecast);
    }
    device.steady = meter.Steady();
  }
  return metrics;
}

void Reporter::WriteFiles(const Metrics& metrics, bool ended) {
  if (metrics_.wanted()) metrics_.Replace(MetricsJson(metrics));
  for (const auto& write : options_.writers) write(metrics, ended);
}

void Reporter::Finish(Time deadline) {
  if (stop_.exchange(true)) return;
  if (!thread_.joinable()) return ReportTheEnd();
  const uint64_t one = 1;
  if (wake_ >= 0 && ::write(wake_, &one, sizeof(one)) < 0)
    os::Log(os::LogLevel::kDebug, "the reporter is awake");
  deadline = std::max(deadline, std::chrono::steady_clock::now() + options_.least_finish);
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
    os::ReportLine(
        "the end of the process has interrupted the last write of metrics: their disk is slow or does not "
        "answer. "
        "Files that were not written then are up to 10 s old");
  }
  // The descriptor stays open, since a signal handler may be about to write to it.
}

void Reporter::ReportTheEnd() {
  const Metrics metrics = Collect(/*ended=*/true);
  if (const std::string summary = Summary(metrics); !summary.empty()) os::ReportLine(summary);
  for (const std::string& line : IterationLines(metrics)) os::ReportLine(line);
  if (const std::string advice = AdviceLine(metrics, options_.advice); !advice.empty())
    os::ReportLine(advice);
  for (const DeviceMetrics& device : metrics.devices) {
    if (!device.observed) continue;
    for (const std::string& line : ObservationLines(device.device, *device.observed)) os::ReportLine(line);
  }
  WriteFiles(metrics, /*ended=*/true);
}

void Reporter::AbandonAfterFork() {
  stop_.store(true);
  SetRequestWake(-1);
  if (wake_ >= 0) ::close(wake_);
}

}  // namespace spillway::integration
