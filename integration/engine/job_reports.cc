#include "integration/engine/job_reports.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "integration/engine/device_metrics.h"
#include "integration/engine/drives.h"
#include "integration/engine/job_text.h"
#include "integration/engine/sizing.h"
#include "integration/hooks/hook_context.h"
#include "integration/hooks/launch_reports.h"
#include "integration/report/iteration_trace.h"
#include "integration/report/job_identity.h"
#include "integration/report/job_log.h"
#include "integration/report/output_file.h"
#include "integration/report/prometheus.h"
#include "integration/report/recorded_command.h"
#include "integration/report/stale_metrics.h"
#include "integration/report/wear.h"
#include "integration/settings/environment.h"
#include "io/os/clock.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

constexpr size_t kBlocksNamed = 5;

std::vector<std::string> CommandOfThisProcess() {
  std::ifstream file("/proc/self/cmdline");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!text.empty() && text.back() == '\0') text.pop_back();
  return RecordedCommand(absl::StrSplit(text, '\0'));
}

}  // namespace

// ---- Facts.

void JobReports::RecordFramework(const std::string& name) {
  if (framework_.load() != nullptr) return;
  auto own = std::make_unique<std::string>(name);
  const std::string* none = nullptr;
  if (framework_.compare_exchange_strong(none, own.get())) (void)own.release();
}

RunFacts JobReports::FactsOfJob(int64_t origin_nanos) const {
  RunFacts facts;
  facts.command = CommandOfThisProcess();
  facts.host = HostName();
  facts.spillway = SPILLWAY_VERSION_TEXT;
  if (const std::string* const framework = framework_.load()) facts.framework = *framework;
  int version = 0;
  if (from_.driver->cuDriverGetVersion(&version) == CUDA_SUCCESS)
    facts.driver = absl::StrCat(version / 1000, ".", version % 1000 / 10);
  facts.pid = ::getpid();
  facts.rank = settings_.ranks.rank;
  facts.local_size = settings_.ranks.size;
  facts.started_unix =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  facts.origin_nanos = origin_nanos;
  for (const SettingRow& row : SettingTable()) {
    const char* const value = from_.shim->setting(row.name);
    if (value != nullptr) facts.settings.push_back({row.name, value, from_.shim->setting_source(row.name)});
  }
  facts.host_bytes = from_.tiers->host_cap_bytes();
  facts.directories = from_.tiers->disk_paths();
  for (const std::string& path : facts.directories)
    facts.drives.push_back(
        {DriveOf(path), RanksOnDrive(path, settings_.RankDirectories(), settings_.ranks.size)});
  return facts;
}

AdviceFacts JobReports::FactsForAdvice() const {
  AdviceFacts facts;
  facts.least_recently_used = settings_.policy == PolicyKind::kLru;
  facts.strict = settings_.trust == Trust::kStrict;
  facts.audit = settings_.audit;
  facts.modeled_disk = settings_.io_model.Limits();
  facts.host_cap_bytes = from_.tiers->host_cap_bytes();
  // If the setting is not used, the budget is what was free.
  if (!settings_.gpu_memory) facts.largest_budget_bytes = 0;
  from_.devices->ForEach([&](const ServedDevice& served) {  // the first counts
    if (facts.largest_budget_bytes == UINT64_MAX)
      facts.largest_budget_bytes = DefaultBudget(served.device_bytes, 0).bytes;
  });
  return facts;
}

// Returns the text that one of the driver's functions of that form reports of the device; empty if it fails.
std::string JobReports::DeviceText(TextQuery ask, int device) const {
  std::array<char, 256> text{};
  CUdevice handle = 0;
  if (from_.driver->cuDeviceGet(&handle, device) != CUDA_SUCCESS) return "";
  return ask(text.data(), static_cast<int>(text.size()) - 1, handle) == CUDA_SUCCESS ? text.data() : "";
}

// ---- Starting.

// The report's writer is the last, since its file is by far the largest.
std::vector<std::function<void(const Metrics&, bool)>> JobReports::MakeWriters(int64_t origin_nanos) {
  std::vector<std::function<void(const Metrics&, bool)>> writers;
  if (from_.tiers->disk() != nullptr) {
    const bool chosen = settings_.dirs || settings_.write_budget;
    const auto wear = std::make_shared<WearReports>(WearReports::Facts{
        from_.tiers->writes(), chosen ? std::string() : from_.tiers->disk_paths().front()});
    writers.push_back([wear](const Metrics& metrics, bool) {
      for (const std::string& line : wear->Update(metrics.seconds, metrics.disk.written_bytes))
        os::ReportLine(line);
    });
  }
  writers.push_back([profile = from_.profile](const Metrics& metrics, bool) {
    profile->Keep(Total(metrics.devices).spilled_bytes, metrics.disk.directories);
  });
  if (!settings_.prometheus.empty()) {
    const std::string path = OutputFile::Expand(settings_.prometheus, settings_.ranks.rank);
    const auto file = std::make_shared<OutputFile>("SPILLWAY_PROMETHEUS", path, Readers::kEveryone);
    const PrometheusLabels labels = {settings_.ranks.rank, ::getpid(),
                                     IdentityOf(EnvironmentVariable, ::geteuid())};
    // This runs on the reporter's thread, since the folder may lie on a slow drive.
    writers.push_back(
        [file, labels, left_by_ended = settings_.prometheus](const Metrics& metrics, bool) mutable {
          if (!left_by_ended.empty()) RemoveStaleMetrics(left_by_ended, std::time(nullptr), ProcessIsThere);
          left_by_ended.clear();
          file->Replace(PrometheusText(metrics, labels));
        });
  }
  if (!settings_.report.empty()) {
    const std::string path = OutputFile::Expand(settings_.report, settings_.ranks.rank);
    const RunSource* const source = this;
    report_ = std::make_unique<RunReport>(path, FactsOfJob(origin_nanos), FactsForAdvice(), source);
    writers.push_back(
        [report = report_.get()](const Metrics& metrics, bool ended) { report->Write(metrics, ended); });
  }
  return writers;
}

void JobReports::OpenSocket() {
  auto opened = JobSocket::Open(JobSocketFolder());
  if (opened.ok()) {
    socket_ = *std::move(opened);
  } else {
    os::Log(os::LogLevel::kInfo, absl::StrCat("spillway top, pause and resume do not reach this job: ",
                                              std::string(opened.status().message())));
  }
}

std::string JobReports::AnswerTo(const std::string& question, Reporter* reporter) const {
  nlohmann::ordered_json answer;
  if (question == "status") {
    answer["command"] = CommandOfThisProcess();
    answer["rank"] = settings_.ranks.rank;
    answer["figures"] = nlohmann::ordered_json::parse(MetricsJson(reporter->Collect()));
    answer["lines"] = os::LastLines();
  } else if (question == "pause" || question == "resume") {
    const absl::Status asked = from_.pause->Ask(question == "pause");
    return asked.ok() ? from_.pause->StateJson() : nlohmann::json({{"error", asked.message()}}).dump();
  } else if (question == "pause state") {
    return from_.pause->StateJson();
  } else {
    answer["error"] = absl::StrCat("Spillway ", SPILLWAY_VERSION_TEXT,
                                   " accepts the requests status, pause, resume and pause state");
  }
  return answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void JobReports::Start() {
  const int64_t origin = os::Clock::System()->NowNanos();
  trace_path_ = OutputFile::Expand(settings_.trace, settings_.ranks.rank);
  Reporter::Options options;
  options.metrics_file = settings_.metrics;
  options.local_rank = settings_.ranks.rank;
  options.status = settings_.status;
  if (settings_.pause == PauseBy::kSignal) {
    options.on_pause_signal = [pause = from_.pause] {
      if (const absl::Status asked = pause->Toggle(); !asked.ok())
        os::ReportLine(absl::StrCat("not paused: ", std::string(asked.message())));
    };
  }
  options.waits = from_.waits;
  options.advice = FactsForAdvice();
  options.writers = MakeWriters(origin);
  if (settings_.log >= os::LogLevel::kInfo) {
    options.after_sample = [log = std::make_shared<JobLog>()](const Metrics& metrics) {
      for (const JobLog::Line& line : log->Update(metrics)) os::Log(line.level, line.text);
    };
  }
  if (settings_.socket) OpenSocket();
  if (socket_ != nullptr) {
    options.visitors = socket_->fd();
    options.serve = [this](Reporter* reporter) {
      socket_->Serve([&](const std::string& question) { return AnswerTo(question, reporter); });
    };
  }
  if (report_ != nullptr) options.sample_often = [report = report_.get()] { report->Sample(); };
  reporter_ = std::make_unique<Reporter>(options, [this, origin] {
    Metrics metrics = CollectNow();
    metrics.seconds = static_cast<double>(os::Clock::System()->NowNanos() - origin) / 1e9;
    return metrics;
  });
}

allocator::MotionObserver* JobReports::AddDevice(int device, const MemoryParts& memory) {
  if (report_ == nullptr) return nullptr;
  ReportedDevice facts;
  facts.device = device;
  facts.device_bytes = memory.device_bytes;
  facts.blocks_bytes = memory.blocks_bytes;
  facts.process_bytes = memory.process_bytes;
  facts.reserve_bytes = memory.reserve_bytes;
  facts.taken_bytes = memory.taken_bytes;
  facts.name = DeviceText(from_.driver->cuDeviceGetName, device);
  facts.pci_bus_id = DeviceText(from_.driver->cuDeviceGetPCIBusId, device);
  return report_->AddDevice(facts);
}

void JobReports::ReportServing(const ServedDevice& served, const allocator::ResidencyOptions& options) const {
  ServedJob job;
  if (const std::string* framework = framework_.load()) job.framework = *framework;
  job.device = served.device;
  (void)from_.driver->cuDeviceGetCount(&job.devices);
  job.memory = MemoryPartsOf({options.budget_bytes, options.reserve_bytes}, served.device_bytes);
  job.shared = settings_.share == ShareWhat::kGpu;
  job.host_bytes = from_.tiers->host_cap_bytes();
  job.disk = from_.tiers->disk_paths();
  job.evicts = options.evict;
  job.observes = settings_.Observes();
  job.rank = settings_.ranks.rank;
  job.ranks = settings_.ranks.size;
  if (from_.devices->Kept().size() > 1) return os::Log(os::LogLevel::kInfo, ServedLine(job));
  os::ReportLine(ServedLine(job));
}

// ---- In service.

Metrics JobReports::CollectNow() const {
  Metrics metrics;
  from_.devices->ForEach(
      [&](const ServedDevice& served) { metrics.devices.push_back(MetricsOf(served, settings_)); });
  if (const io::SpillStore* const disk = from_.tiers->disk()) {
    const io::SpillStoreStats stats = disk->stats();
    metrics.disk.written_bytes = stats.bytes_written;
    metrics.disk.read_bytes = stats.bytes_read;
    metrics.disk.capacity_bytes = disk->capacity_bytes();
    metrics.disk.directories = stats.directories;
    if (const io::WriteBudget* const writes = from_.tiers->writes()) {
      metrics.disk.write_budget_bytes = writes->bytes();
      metrics.disk.write_budget_left_bytes = writes->left_bytes();
    }
  }
  if (const allocator::HostPool* const host = from_.tiers->host())
    metrics.host_capacity_bytes = host->storage_capacity_bytes();
  if (const HookState* const hooks = GetHookState())
    metrics.unknown_kernel_launches = hooks->unknown_launches.load();
  if (const allocator::AddressMap* const addresses = from_.tiers->addresses())
    metrics.unmatched_addresses = addresses->unmatched();
  if (const std::string* const reason = from_.evictions->ended_by()) metrics.evictions_ended = *reason;
  metrics.newer_calls = from_.shim->newer_calls();
  metrics.pause = from_.pause->metrics();
  metrics.waits = from_.waits->Metrics();
  metrics.waits_now = from_.waits->Describe();
  return metrics;
}

Metrics JobReports::Collect() const { return from_.devices->any() ? reporter_->Collect() : Metrics(); }

void JobReports::MarkIteration() const {
  if (from_.devices->any() && report_ != nullptr) report_->MarkIteration();
}

absl::Status JobReports::Explain(int device, const absl::Status& refused) const {
  const ServedDevice* const served = from_.devices->Find(device);
  if (!absl::IsResourceExhausted(refused) || served == nullptr) return refused;
  const NameOfIndex name = [this, device](policy::LaunchIndex index) { return NameOfLaunch(device, index); };
  const std::string blocks = LargestBlocksText(served->residency->LargestBlocks(kBlocksNamed), name);
  if (blocks.empty()) return refused;
  return allocator::WithText(refused, absl::StrCat(std::string(refused.message()), ". ", blocks));
}

// ---- RunSource.

std::optional<RunSource::DeviceSample> JobReports::Sample(int device) const {
  const ServedDevice* const served = from_.devices->Find(device);
  if (served == nullptr) return std::nullopt;
  DeviceSample sample{served->residency->Stats()};
  if (served->predictor == nullptr) return sample;
  const PredictorStats prediction = served->predictor->stats();
  sample.iteration_launches = prediction.iteration_launches;
  sample.departures = prediction.departures;
  return sample;
}

std::vector<allocator::LargeBlock> JobReports::LargestBlocks(int device, size_t most) const {
  const ServedDevice* const served = from_.devices->Find(device);
  return served == nullptr ? std::vector<allocator::LargeBlock>() : served->residency->LargestBlocks(most);
}

std::vector<io::DirectoryStats> JobReports::Directories() const {
  const io::SpillStore* const disk = from_.tiers->disk();
  return disk == nullptr ? std::vector<io::DirectoryStats>() : disk->stats().directories;
}

std::vector<ReportedPause> JobReports::Pauses() const { return from_.pause->Intervals(); }

std::string JobReports::NameOfLaunch(int device, policy::LaunchIndex index) const {
  const ServedDevice* const served = from_.devices->Find(device);
  if (served == nullptr || served->predictor == nullptr) return "";
  const std::optional<uint64_t> tag = served->predictor->TagOf(index);
  return tag ? KernelOf(*tag) : "";
}

void JobReports::AskForIteration(int device) const {
  const ServedDevice* const served = from_.devices->Find(device);
  if (served != nullptr && served->predictor != nullptr) served->predictor->AskForIteration();
}

std::shared_ptr<const Predictor::Followed> JobReports::LastIteration(int device) const {
  const ServedDevice* const served = from_.devices->Find(device);
  return served == nullptr || served->predictor == nullptr ? nullptr : served->predictor->LastIteration();
}

std::string JobReports::KernelOf(uint64_t tag) const { return NameOfTag(&GetHookState()->functions, tag); }

// ---- Ending.

void JobReports::WriteIterations() const {
  if (settings_.trace.empty() && report_ == nullptr) return;
  std::vector<DeviceIteration> iterations;
  for (const ServedDevice* const served : from_.devices->Kept()) {
    if (served->predictor != nullptr)
      iterations.push_back({served->device, served->predictor->FollowedIteration()});
  }
  const auto name = [this](uint64_t tag) { return KernelOf(tag); };
  if (report_ != nullptr) report_->SetIterations(iterations, name);
  if (settings_.trace.empty()) return;
  for (const std::string& line : WriteIterationTraces(trace_path_, std::move(iterations), name))
    os::ReportLine(line);
}

void JobReports::Finish(Reporter::Time deadline) const {
  if (reporter_ != nullptr) reporter_->Finish(deadline);
  if (socket_ != nullptr) socket_->RemoveName();
}

void JobReports::AbandonAfterFork() const {
  if (reporter_ != nullptr) reporter_->AbandonAfterFork();
  if (socket_ != nullptr) socket_->AbandonAfterFork();
}

}  // namespace spillway::integration
