// RunReport: SPILLWAY_REPORT. It has the recorders of each device, samples the metrics 20 times a second, and
// writes each device's file whenever the reporter writes: after the first second, every 10 s and at the end.
// JobReports creates it if the setting asks for it, and gives its recorders to the devices; the reporter's
// thread samples and writes. A file that cannot be written costs one line; nothing else fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_RUN_REPORT_H_
#define SPILLWAY_INTEGRATION_REPORT_RUN_REPORT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/memory/address_map.h"
#include "allocator/residency/residency.h"
#include "integration/report/advice.h"
#include "integration/report/iteration_trace.h"
#include "integration/report/metrics.h"
#include "integration/report/output_file.h"
#include "integration/report/run_data.h"
#include "io/os/clock.h"
#include "io/os/sync.h"
#include "io/store/spill_store.h"

namespace spillway::integration {

// The source of a report's metrics, which JobReports implements. Called on the reporter's thread.
class RunSource {
 public:
  virtual ~RunSource() = default;
  struct DeviceSample {
    allocator::ResidencyStats stats;
    uint64_t iteration_launches = 0;  // of the iteration that repeats now; 0: none is known
    uint64_t departures = 0;
  };
  // Returns none if the device is not in service yet.
  virtual std::optional<DeviceSample> Sample(int device) const = 0;
  virtual std::vector<allocator::LargeBlock> LargestBlocks(int device, size_t most) const = 0;
  virtual std::vector<io::DirectoryStats> Directories() const = 0;
  virtual std::vector<ReportedPause> Pauses() const = 0;
  // The first asks for a record of the device's iteration as far as it is known by now, to be made soon. The
  // second returns the last that was made; null if none was.
  virtual void AskForIteration(int device) const = 0;
  virtual std::shared_ptr<const Predictor::Followed> LastIteration(int device) const = 0;
  // Return the kernel or call of a launch, by its index or its tag; empty: not known.
  virtual std::string NameOfLaunch(int device, policy::LaunchIndex index) const = 0;
  virtual std::string KernelOf(uint64_t tag) const = 0;
};

class RunReport {
 public:
  // `path`: of the first device's file. `source` and `clock` must outlive this object.
  RunReport(std::string path, RunFacts facts, const AdviceFacts& advice, const RunSource* source,
            const os::Clock* clock = os::Clock::System());
  ~RunReport();

  // Called once for each device, before its residency is created, which takes the observer that this returns.
  allocator::MotionObserver* AddDevice(const ReportedDevice& facts);
  // Records that the job has ended an iteration. Thread-safe.
  void MarkIteration();
  // Replaces what is known of the devices' iterations. Thread-safe: the reporter's thread calls it while the
  // job runs, that of the exit handler at the end.
  void SetIterations(const std::vector<DeviceIteration>& iterations, const NameOfLaunch& name);

  // ---- For the reporter's thread.

  // Samples the metrics, unless samples would take more than 1 % of the time; once a second all the same.
  void Sample();
  void Write(const Metrics& metrics, bool ended);

 private:
  struct Device;

  double Seconds(int64_t nanos) const { return static_cast<double>(nanos - facts_.origin_nanos) / 1e9; }
  Device* At(int device) const;
  void ChooseFirst(const Metrics& metrics);
  void RecordSample(Device* device, const RunSource::DeviceSample& sample, double seconds);
  void RecordTransfers(Device* device, const allocator::ResidencyStats& stats, double seconds);
  void InspectPower(Device* device, double seconds);
  void TakeIteration(Device* device);
  void RecordLargest(Device* device, uint64_t live_bytes, double seconds);
  std::vector<ReportedBlock> CostliestBlocks(const Device& device) const;
  void AddKernels(const Device& device, RunData* data) const;
  RunData DataOf(const Device& device, const Metrics& metrics, bool ended) const;

  const std::string path_;
  const RunFacts facts_;
  const AdviceFacts advice_;
  const RunSource* const source_;
  const os::Clock* const clock_;
  std::array<std::unique_ptr<Device>, allocator::kMaxDevices> owned_;  // written once, released by devices_
  std::array<std::atomic<Device*>, allocator::kMaxDevices> devices_{};
  std::atomic<int> added_{0};  // the number of devices

  // Used by the reporter's thread.
  const Device* first_ = nullptr;  // the device whose file is at path_; null: none was written
  int64_t next_sample_at_ = 0;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_RUN_REPORT_H_
