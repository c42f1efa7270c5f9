// Reporter: tells the user what happened: the metrics file every 10 s and at the end, the summary at the end. It
// collects figures through a function and owns none. (The line when spilling starts is the allocator room's.)

#ifndef SPILLWAY_INTEGRATION_ENGINE_REPORTER_H_
#define SPILLWAY_INTEGRATION_ENGINE_REPORTER_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "integration/engine/report.h"
#include "io/os/sync.h"

namespace spillway::integration {

class Reporter {
 public:
  // `metrics_file`: empty for none, and then no thread either; "%p" becomes the process number and "%r" the rank. `collect` is called on the
  // reporter's thread and in Finish.
  Reporter(const std::string& metrics_file, int local_rank, std::function<Figures()> collect);
  ~Reporter();

  // Ends the thread, prints the summary and writes the metrics for the last time. Once.
  void Finish();

  // The path with its marks replaced.
  static std::string MetricsPath(const std::string& metrics_file, int local_rank);

 private:
  void Loop();
  bool WaitFor(int milliseconds);  // false: Finish was called
  void WriteMetrics(const Figures& figures);

  const std::string path_;
  const std::function<Figures()> collect_;
  bool write_failed_ = false;  // said so; the reporter's thread, then Finish

  os::Mutex mu_{os::LockRank::kRegistry};
  os::CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_REPORTER_H_
