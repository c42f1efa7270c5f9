// JobReports: all reports of a job: the line at its first block, the metrics, the files and lines that
// settings ask for (SPILLWAY_METRICS, PROMETHEUS, STATUS, REPORT, TRACE), and the text of a refused
// allocation. Runtime creates it with the engine and starts it with the first device. It gathers the job's
// facts and metrics from the engine's parts, and moves nothing. Each method names the thread on which it is
// called. A file that cannot be written costs a line; nothing else fails.

#ifndef SPILLWAY_INTEGRATION_ENGINE_JOB_REPORTS_H_
#define SPILLWAY_INTEGRATION_ENGINE_JOB_REPORTS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "allocator/driver/cuda_driver.h"
#include "integration/engine/devices.h"
#include "integration/engine/eviction_switch.h"
#include "integration/engine/job_pause.h"
#include "integration/engine/job_profile.h"
#include "integration/engine/job_socket.h"
#include "integration/engine/reporter.h"
#include "integration/engine/sizing.h"
#include "integration/engine/tiers.h"
#include "integration/preload/shim_abi.h"
#include "integration/report/metrics.h"
#include "integration/report/run_report.h"
#include "integration/settings/settings.h"
#include "io/os/wait.h"

namespace spillway::integration {

class JobReports : private RunSource {
 public:
  // The sources of facts and metrics. All of them must outlive the reports.
  struct Sources {
    const spillway_shim* shim;
    const Settings* settings;
    const allocator::CudaDriver* driver;
    const Tiers* tiers;
    const Devices* devices;
    const EvictionSwitch* evictions;
    os::WaitList* waits;
    JobPause* pause;
    JobProfile* profile;
  };
  explicit JobReports(const Sources& from) : from_(from), settings_(*from.settings) {}

  // Records whose allocator is installed: "PyTorch 2.11". The first name counts. Thread-safe; takes no lock.
  void RecordFramework(const std::string& name);

  // ---- While devices start; one thread at a time.

  // Called at the first device, once the tiers have started. Starts the reporter's thread.
  void Start();
  // Called before the device's residency is created, which takes the observer that this returns; null: no
  // report is asked for.
  allocator::MotionObserver* AddDevice(int device, const MemoryParts& memory);
  // Reports that the device is in service: one line for the first, details for further devices.
  void ReportServing(const ServedDevice& served, const allocator::ResidencyOptions& options) const;

  // ---- While a device is in service; thread-safe.

  // Returns the metrics of this moment; empty before a device is in service.
  Metrics Collect() const;
  // Records that the job has ended an iteration.
  void MarkIteration() const;
  // Returns `refused`, an allocation's status, with the largest live blocks of the device and their last
  // kernels. A status that does not concern memory stays as it is.
  absl::Status Explain(int device, const absl::Status& refused) const;

  // ---- At the end.

  // Writes SPILLWAY_TRACE, and the report's last iterations. Called after the predictors have stopped.
  void WriteIterations() const;
  // Writes the summary and, for the last time, each file, until `deadline` (Reporter::Finish).
  void Finish(Reporter::Time deadline) const;
  // Called in a forked child, on its only thread.
  void AbandonAfterFork() const;

 private:
  RunFacts FactsOfJob(int64_t origin_nanos) const;
  AdviceFacts FactsForAdvice() const;
  using TextQuery = CUresult(CUDAAPI*)(char* text, int length, CUdevice device);
  std::string DeviceText(TextQuery ask, int device) const;
  std::vector<std::function<void(const Metrics&, bool)>> MakeWriters(int64_t origin_nanos);
  void OpenSocket();
  std::string AnswerTo(const std::string& question, Reporter* reporter) const;
  Metrics CollectNow() const;

  std::optional<DeviceSample> Sample(int device) const override;
  std::vector<allocator::LargeBlock> LargestBlocks(int device, size_t most) const override;
  std::vector<io::DirectoryStats> Directories() const override;
  std::vector<ReportedPause> Pauses() const override;
  std::string NameOfLaunch(int device, policy::LaunchIndex index) const override;
  std::string KernelOf(uint64_t tag) const override;
  void AskForIteration(int device) const override;
  std::shared_ptr<const Predictor::Followed> LastIteration(int device) const override;

  const Sources from_;
  const Settings& settings_;
  std::atomic<const std::string*> framework_{nullptr};  // never freed

  // Written by Start, before a device is in service.
  std::string trace_path_;             // empty: no trace is wanted
  std::unique_ptr<RunReport> report_;  // null: SPILLWAY_REPORT does not ask for one
  std::unique_ptr<JobSocket> socket_;  // null: nobody may ask; the reporter's thread serves it
  std::unique_ptr<Reporter> reporter_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_JOB_REPORTS_H_
