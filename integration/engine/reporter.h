// Reporter reports to the user. It writes the metrics file after 1 s, every 10 s and at the end, a status
// line when SIGUSR1 asks for one, lines about waits that take long, and the summary at the end. It samples
// the metrics every second, to measure iterations. It collects metrics through a function and owns none.
// JobReports creates it with the first device. If its thread cannot be started, or a file cannot be written,
// one line reports it. (The line when spilling starts comes from the allocator.)

#ifndef SPILLWAY_INTEGRATION_ENGINE_REPORTER_H_
#define SPILLWAY_INTEGRATION_ENGINE_REPORTER_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "integration/report/advice.h"
#include "integration/report/metrics.h"
#include "integration/report/output_file.h"
#include "integration/settings/settings.h"
#include "io/os/sync.h"
#include "io/os/wait.h"

namespace spillway::integration {

// Iterations per second, from metrics that come now and then. The rate covers the time since the previous
// sample, or the last one to two seconds if samples come more often than once a second.
class IterationRate {
 public:
  // Returns 0 if no iteration is known or no second has passed.
  double Update(const Metrics& metrics);

 private:
  struct Sample {
    double seconds = 0;
    uint64_t launches = 0;
  };
  Sample older_;
  Sample newer_;
};

class Reporter {
 public:
  struct Options {
    std::string metrics_file;  // empty: none; "%p" becomes the process number and "%r" the rank
    int local_rank = 0;
    // If one of these two is set, the signal's handler has been installed (request_signals.h).
    StatusLine status = StatusLine::kOff;
    std::function<void()> on_pause_signal = nullptr;  // null: SIGUSR2 is not ours
    std::chrono::milliseconds first{1'000};           // before the metrics file is written for the first time
    std::chrono::milliseconds every{10'000};          // between two writings of it
    std::chrono::milliseconds sample_every{1'000};    // between two samples of the metrics
    AdviceFacts advice = {};                          // for the last line
    os::WaitList* waits = nullptr;                    // its lines are written when they are due; null: none
    // Called on the reporter's thread after each sample. May be empty.
    std::function<void(const Metrics& metrics)> after_sample = nullptr;
    // `sample_often` is called on the reporter's thread at intervals of `often`; `writers` after each writing
    // of the metrics (`ended`: the last one). Both may be empty. The time at the end is limited, so the
    // writer that writes most comes last.
    std::chrono::milliseconds often{50};
    std::function<void()> sample_often = nullptr;
    std::vector<std::function<void(const Metrics& metrics, bool ended)>> writers = {};
    // `serve` is called on the reporter's thread when the descriptor `visitors` is readable. -1: there is
    // none.
    int visitors = -1;
    std::function<void(Reporter* reporter)> serve = nullptr;
    std::chrono::milliseconds least_finish{350};  // time that Finish waits, whatever its deadline
  };
  // Starts the thread. `collect` is called on the reporter's thread and in Finish.
  Reporter(const Options& options, std::function<Metrics()> collect);
  ~Reporter();

  using Time = std::chrono::steady_clock::time_point;
  // Makes the thread print the summary, write its files for the last time, and end. Waits until `deadline`,
  // and for least_finish in any case: a file may lie on a drive that does not answer. A thread that is late
  // is left to itself, with a line, and this object must live as long as the process then. A second call does
  // nothing.
  void Finish(Time deadline = {});
  // Called in a forked child: closes the descriptor and writes nothing any more.
  void AbandonAfterFork();

  // Returns the metrics as they are reported, with the rate of iterations. Thread-safe.
  Metrics Collect() { return Collect(/*ended=*/false); }

 private:
  Metrics Collect(bool ended);
  void Loop();
  void ReportTheEnd();
  bool WaitUntil(Time time);
  bool WaitOnce(Time time);
  void WaitAndSampleOften(Time time);
  void WriteFiles(const Metrics& metrics, bool ended);

  const Options options_;
  const std::function<Metrics()> collect_;
  OutputFile metrics_;             // used by the reporter's thread
  int wake_ = -1;                  // eventfd: a status line is wanted, or the end has come
  std::atomic<bool> stop_{false};  // stored before wake_ is written, read after it was

  os::Mutex mu_{os::LockRank::kRegistry};
  os::CondVar ended_cv_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  IterationRate rate_ ABSL_GUARDED_BY(mu_);
  std::map<int, IterationMeter> meters_ ABSL_GUARDED_BY(mu_);  // by device
  std::thread thread_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_REPORTER_H_
