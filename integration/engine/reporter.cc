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

Reporter::Reporter(const Options& options, std::function<Figures()> collect)
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
    if (options_.waits != nullptr) options_.waits->Look();  // first, since a wait may delay the rest
    const Figures figures = Collect();
    if (options_.after_look) options_.after_look(figures);
    if (options_.status == StatusLine::kSignal && TakeRequest(SignalRequest::kStatus))
      os::ReportLine(StatusText(figures));
    if (options_.on_pause_signal && TakeRequest(SignalRequest::kPause)) options_.on_pause_signal();
    if (std::chrono::steady_clock::now() >= next) {
      WriteFiles(figures, /*ended=*/false);
      next = std::chrono::steady_clock::now() + options_.every;
    }
    WaitAndLookOften(std::min(next, std::chrono::steady_clock::now() + options_.look));
  }
  ReportTheEnd();
  os::MutexLock lock(&mu_);
  ended_ = true;
  ended_cv_.NotifyAll();
}

void Reporter::WaitAndLookOften(Time time) {
  if (!options_.look_often) return (void)WaitUntil(time);
  bool woken = false;
  while (!woken && !stop_.load() && std::chrono::steady_clock::now() < time) {
    options_.look_often();
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

// The job has done something else for a while at the end of the process, so the figures of its iterations
// stay as they were.
Figures Reporter::Collect(bool ended) {
  Figures figures = collect_();
  os::MutexLock lock(&mu_);
  figures.iterations_per_second = rate_.Update(figures);
  for (DeviceFigures& device : figures.devices) {
    IterationMeter& meter = meters_[device.device];
    if (!ended || meter.Steady().iterations == 0) {
      meter.Look(figures.seconds, static_cast<uint32_t>(device.plan_iteration_launches),
                 device.plan_departures, device.stats, device.forecast);
    }
    device.steady = meter.Steady();
  }
  return figures;
}

void Reporter::WriteFiles(const Figures& figures, bool ended) {
  if (metrics_.wanted()) metrics_.Replace(MetricsJson(figures));
  for (const auto& write : options_.writers) write(figures, ended);
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
        "the end of the process has cut off the last writing of figures: their disk is slow or does not "
        "answer. "
        "Files that were not reached are those of up to 10 s before");
  }
  // The descriptor stays open, since a signal handler may be about to write to it.
}

void Reporter::ReportTheEnd() {
  const Figures figures = Collect(/*ended=*/true);
  if (const std::string summary = Summary(figures); !summary.empty()) os::ReportLine(summary);
  for (const std::string& line : IterationLines(figures)) os::ReportLine(line);
  if (const std::string advice = AdviceLine(figures, options_.advice); !advice.empty())
    os::ReportLine(advice);
  for (const DeviceFigures& device : figures.devices) {
    if (!device.observed) continue;
    for (const std::string& line : ObservationLines(device.device, *device.observed)) os::ReportLine(line);
  }
  WriteFiles(figures, /*ended=*/true);
}

void Reporter::AbandonAfterFork() {
  stop_.store(true);
  SetRequestWake(-1);
  if (wake_ >= 0) ::close(wake_);
}

}  // namespace spillway::integration
