#include "integration/report/run_report.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "integration/report/iteration_facts.h"
#include "integration/report/iteration_log.h"
#include "integration/report/kernel_name.h"
#include "integration/report/motion_log.h"
#include "integration/report/power_meter.h"
#include "integration/report/time_series.h"
#include "policy/model/active_share.h"
#include "policy/model/lifetimes.h"

namespace spillway::integration {
namespace {

using allocator::ResidencyStats;

constexpr double kEverySeconds = 0.05;
constexpr size_t kMaxIntervals = 4096;
constexpr int64_t kSampleIntervalRatio = 100;  // in units of the time that the sample took
constexpr int64_t kMaxSampleInterval = 1'000'000'000;
constexpr double kBetweenLargest = 0.25;  // seconds
constexpr double kBetweenPower = 1;
// Seconds between two questions for the iteration while none is known. After that it is asked for whenever
// the run is twice as old.
constexpr double kBetweenQuestions = 1;
constexpr size_t kMaxNamed = 20;        // blocks and kernels
constexpr size_t kMaxConsidered = 500;  // blocks among which those that moved most are chosen

size_t TransferStats(const RunFacts& facts) {
  return static_cast<size_t>(TransferFigure::kDirectories) + 2 * facts.directories.size();
}

// Kernels with one name may have several tags.
void AddReaching(const MotionLog::LaunchSums& sums, const std::string& name, ReachingKernel* kernel) {
  kernel->name = name;
  kernel->launches += sums.reaching;
  kernel->bytes += sums.reached_bytes;
  kernel->most_bytes = std::max(kernel->most_bytes, sums.most_reached_bytes);
}

}  // namespace

struct RunReport::Device {
  Device(const ReportedDevice& device, const RunFacts& run, int number)
      : facts(device),
        order(number),
        memory(static_cast<size_t>(MemoryFigure::kCount), Merge::kMaximum, kEverySeconds, kMaxIntervals),
        transfers(TransferStats(run), Merge::kSum, kEverySeconds, kMaxIntervals),
        transferred(TransferStats(run)),
        power({.pci_bus_id = device.pci_bus_id}) {}

  const ReportedDevice facts;
  const int order;  // among the devices that were added
  MotionLog motion;
  IterationLog iterations;

  // Used by the reporter's thread.
  TimeSeries memory;
  TimeSeries transfers;
  std::vector<uint64_t> transferred;  // up to the last sample
  uint64_t highest_live = 0;          // when `largest` was taken
  double largest_at = -kBetweenLargest;
  std::vector<ReportedBlock> largest;
  PowerMeter power;
  double power_at = -kBetweenPower;
  double ask_at = kBetweenQuestions;
  std::shared_ptr<const Predictor::Followed> taken;  // the last that was asked for
  std::optional<OutputFile> file;

  mutable os::Mutex mu{os::LockRank::kRecorder};
  std::optional<IterationFacts> iteration ABSL_GUARDED_BY(mu);
  std::vector<ReportedKernel> kernels ABSL_GUARDED_BY(mu);
};

RunReport::RunReport(std::string path, RunFacts facts, const AdviceFacts& advice, const RunSource* source,
                     const os::Clock* clock)
    : path_(std::move(path)), facts_(std::move(facts)), advice_(advice), source_(source), clock_(clock) {}

RunReport::~RunReport() = default;

allocator::MotionObserver* RunReport::AddDevice(const ReportedDevice& facts) {
  const auto place = static_cast<size_t>(facts.device);
  owned_[place] = std::make_unique<Device>(facts, facts_, added_.fetch_add(1));
  devices_[place].store(owned_[place].get(), std::memory_order_release);
  return &owned_[place]->motion;
}

RunReport::Device* RunReport::At(int device) const {
  return devices_[static_cast<size_t>(device)].load(std::memory_order_acquire);
}

void RunReport::MarkIteration() {
  const double now = Seconds(clock_->NowNanos());
  for (const auto& entry : devices_) {
    if (Device* const device = entry.load(std::memory_order_acquire)) device->iterations.Mark(now);
  }
}

void RunReport::SetIterations(const std::vector<DeviceIteration>& iterations, const NameOfLaunch& name) {
  for (const DeviceIteration& one : iterations) {
    Device* const device = At(one.device);
    if (device == nullptr || !one.iteration) continue;
    Predictor::Followed named = *one.iteration;
    absl::StatusOr<std::string> file = EncodeIteration(&named, name);
    if (!file.ok()) continue;
    const policy::Workload& workload = named.recorded.workload;
    const int64_t peak = std::max<int64_t>(0, policy::FindLifetimes(workload).PeakLive());
    IterationFacts facts;
    facts.file = *std::move(file);
    facts.active_share = policy::FindActiveShare(workload, static_cast<policy::Bytes>(peak)).by_time;
    facts.phases = FindPhases(workload, named.first);
    os::MutexLock lock(&device->mu);
    device->iteration = std::move(facts);
    device->kernels = CostsOfKernels(workload);
  }
}

// ---- Looking.

void RunReport::Sample() {
  const int64_t now = clock_->NowNanos();
  if (now < next_sample_at_) return;
  for (const auto& entry : devices_) {
    Device* const device = entry.load(std::memory_order_acquire);
    if (device == nullptr) continue;
    if (const auto sample = source_->Sample(device->facts.device))
      RecordSample(device, *sample, Seconds(now));
  }
  // Looks at power come once a second in any case. The first one, when NVML is opened, takes long, so it is
  // not part of the measured time.
  const int64_t took = clock_->NowNanos() - now;
  next_sample_at_ = now + std::min(kSampleIntervalRatio * took, kMaxSampleInterval);
  for (const auto& entry : devices_) {
    Device* const device = entry.load(std::memory_order_acquire);
    if (device != nullptr && device->memory.size() > 0) InspectPower(device, Seconds(now));
  }
}

void RunReport::RecordSample(Device* device, const RunSource::DeviceSample& sample, double seconds) {
  const ResidencyStats& stats = sample.stats;
  const uint64_t memory[] = {stats.chunk_bytes + stats.external_bytes, stats.resident_bytes,
                             stats.host_tier_bytes, stats.disk_tier_bytes, stats.live_bytes};
  static_assert(std::size(memory) == static_cast<size_t>(MemoryFigure::kCount));
  device->memory.Add(seconds, memory);
  RecordTransfers(device, stats, seconds);
  device->iterations.Record({seconds, stats.launches, sample.iteration_launches, sample.departures});
  RecordLargest(device, stats.live_bytes, seconds);
  if (seconds >= device->ask_at) {
    const bool known = source_->LastIteration(device->facts.device) != nullptr;
    device->ask_at = known ? 2 * seconds : seconds + kBetweenQuestions;
    source_->AskForIteration(device->facts.device);
  }
}

void RunReport::InspectPower(Device* device, double seconds) {
  if (seconds < device->power_at + kBetweenPower) return;
  device->power_at = seconds;
  device->power.Sample();
}

void RunReport::RecordTransfers(Device* device, const ResidencyStats& stats, double seconds) {
  std::vector<uint64_t> now = {stats.spilled_bytes, stats.fetched_bytes};
  for (const io::DirectoryStats& directory : source_->Directories()) {
    now.push_back(directory.bytes_written);
    now.push_back(directory.bytes_read);
  }
  now.resize(device->transferred.size());
  std::vector<uint64_t> moved(now.size());
  for (size_t i = 0; i < now.size(); ++i) moved[i] = now[i] - std::min(now[i], device->transferred[i]);
  device->transfers.Add(seconds, moved);
  device->transferred = std::move(now);
}

void RunReport::RecordLargest(Device* device, uint64_t live_bytes, double seconds) {
  if (live_bytes <= device->highest_live || seconds < device->largest_at + kBetweenLargest) return;
  device->highest_live = live_bytes;
  device->largest_at = seconds;
  device->largest.clear();
  const int ordinal = device->facts.device;
  for (const allocator::LargeBlock& block : source_->LargestBlocks(ordinal, kMaxConsidered)) {
    ReportedBlock& entry = device->largest.emplace_back();
    entry.block = block.id;
    entry.bytes = block.requested_bytes;
    if (block.last_launch)
      entry.last_kernel = ShortKernelName(source_->NameOfLaunch(ordinal, *block.last_launch));
  }
}

// ---- Writing.

// Records the iteration for a run that is killed later. There is a better one at the end.
void RunReport::TakeIteration(Device* device) {
  const int ordinal = device->facts.device;
  std::shared_ptr<const Predictor::Followed> last = source_->LastIteration(ordinal);
  if (last == nullptr || last == device->taken) return;
  device->taken = last;
  SetIterations({{ordinal, *last}}, [this](uint64_t tag) { return source_->KernelOf(tag); });
}

// Chooses the device whose file is at the path itself: the first that was added, among those in service. A
// device that could not be started has no file.
void RunReport::ChooseFirst(const Metrics& metrics) {
  if (first_ != nullptr) return;
  for (const DeviceMetrics& entry : metrics.devices) {
    const Device* const device = At(entry.device);
    if (device != nullptr && (first_ == nullptr || device->order < first_->order)) first_ = device;
  }
}

void RunReport::Write(const Metrics& metrics, bool ended) {
  ChooseFirst(metrics);
  for (const DeviceMetrics& entry : metrics.devices) {
    Device* const device = At(entry.device);
    if (device == nullptr) continue;
    RecordSample(device, {entry.stats, entry.plan_iteration_launches, entry.plan_departures},
                 metrics.seconds);
    InspectPower(device, metrics.seconds);
    if (!ended) TakeIteration(device);
    if (!device->file)
      device->file.emplace("SPILLWAY_REPORT", OutputFile::OfDevice(path_, entry.device, device == first_),
                           Readers::kOwner);
    device->file->Replace(RunDataJson(DataOf(*device, metrics, ended)));
  }
}

RunData RunReport::DataOf(const Device& device, const Metrics& metrics, bool ended) const {
  RunData data;
  data.facts = &facts_;
  data.device = &device.facts;
  data.seconds = metrics.seconds;
  data.ended = ended;
  data.metrics = MetricsJson(metrics);
  data.advice = AdviceLine(metrics, advice_);
  for (const io::DirectoryStats& directory : source_->Directories())
    data.disk_capacity.push_back(directory.file_bytes);
  data.memory = &device.memory;
  data.transfers = &device.transfers;
  data.iterations = device.iterations.Iterations();
  data.motion = device.motion.Copy();
  data.largest_blocks = CostliestBlocks(device);
  data.power = device.power.Used();
  data.pauses = source_->Pauses();
  AddKernels(device, &data);
  return data;
}

// Returns the blocks that moved most among those that were live when the most bytes were; the largest if
// nothing moved.
std::vector<ReportedBlock> RunReport::CostliestBlocks(const Device& device) const {
  std::vector<ReportedBlock> blocks = device.largest;
  for (ReportedBlock& block : blocks) block.sums = device.motion.SumsOf(block.block);
  std::stable_sort(blocks.begin(), blocks.end(), [](const ReportedBlock& a, const ReportedBlock& b) {
    return a.sums.moved_bytes > b.sums.moved_bytes;
  });
  if (blocks.size() > kMaxNamed) blocks.resize(kMaxNamed);
  return blocks;
}

// Adds the kernels of the iteration and those that were stalled, the costliest first, and those that reached
// host memory.
void RunReport::AddKernels(const Device& device, RunData* data) const {
  std::map<std::string, ReportedKernel> kernels;
  {
    os::MutexLock lock(&device.mu);
    data->iteration = device.iteration;
    for (const ReportedKernel& kernel : device.kernels) kernels[kernel.name] = kernel;
  }
  std::map<std::string, ReachingKernel> reaching;
  for (const MotionLog::LaunchSums& sums : device.motion.SumsByTag()) {
    const std::string name = ShortKernelName(source_->KernelOf(sums.tag));
    data->kernel_names[sums.tag] = name;
    if (name.empty()) continue;
    if (sums.stalled_nanos > 0) {
      ReportedKernel& kernel = kernels[name];
      kernel.name = name;
      kernel.stalled_seconds += static_cast<double>(sums.stalled_nanos) / 1e9;
    }
    if (sums.reaching > 0) AddReaching(sums, name, &reaching[name]);
  }
  for (auto& [name, kernel] : reaching) data->reaching_kernels.push_back(std::move(kernel));
  std::ranges::stable_sort(data->reaching_kernels, std::greater(), &ReachingKernel::bytes);
  if (data->reaching_kernels.size() > kMaxNamed) data->reaching_kernels.resize(kMaxNamed);
  for (auto& [name, kernel] : kernels) data->costliest_kernels.push_back(std::move(kernel));
  const auto cost = [](const ReportedKernel& kernel) {
    return kernel.seconds.value_or(0) + kernel.stalled_seconds;
  };
  std::ranges::stable_sort(data->costliest_kernels, std::greater(), cost);
  if (data->costliest_kernels.size() > kMaxNamed) data->costliest_kernels.resize(kMaxNamed);
}

}  // namespace spillway::integration
