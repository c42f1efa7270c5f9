// What Runtime has to do with SPILLWAY_REPORT: the facts that it knows of the job, and where the report's
// figures come from.

#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "integration/engine/drives.h"
#include "integration/engine/machine.h"
#include "integration/engine/prometheus.h"
#include "integration/engine/recorded_command.h"
#include "integration/engine/runtime.h"
#include "integration/hooks/launch_reports.h"
#include "io/os/clock.h"

namespace spillway::integration {
namespace {

std::vector<std::string> CommandOfThisProcess() {
  std::ifstream file("/proc/self/cmdline");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!text.empty() && text.back() == '\0') text.pop_back();
  return RecordedCommand(absl::StrSplit(text, '\0'));
}

}  // namespace

RunFacts Runtime::FactsForReport() const {
  RunFacts facts;
  facts.command = CommandOfThisProcess();
  facts.host = HostName();
  facts.spillway = SPILLWAY_VERSION_TEXT;
  if (const std::string* const framework = framework_.load()) facts.framework = *framework;
  int version = 0;
  if (driver_->cuDriverGetVersion(&version) == CUDA_SUCCESS)
    facts.driver = absl::StrCat(version / 1000, ".", version % 1000 / 10);
  facts.pid = ::getpid();
  facts.rank = settings_.ranks.rank;
  facts.local_size = settings_.ranks.size;
  facts.started_unix =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (const SettingRow& row : SettingTable()) {
    const char* const value = shim_->setting(row.name);
    if (value != nullptr) facts.settings.push_back({row.name, value, shim_->setting_source(row.name)});
  }
  facts.host_bytes = host_cap_bytes_;
  facts.directories = disk_paths_;
  for (const std::string& path : disk_paths_)
    facts.drives.push_back(
        {DriveOf(path), RanksOnDrive(path, settings_.RankDirectories(), settings_.ranks.size)});
  return facts;
}

// What one of the driver's functions of that form says of the device; empty where it says nothing.
std::string Runtime::WordsOfDevice(const char* function, int device) const {
  using Function = CUresult (*)(char* text, int length, CUdevice device);
  const auto ask = reinterpret_cast<Function>(shim_->real(function));
  std::array<char, 256> text{};
  CUdevice handle = 0;
  if (ask == nullptr || driver_->cuDeviceGet(&handle, device) != CUDA_SUCCESS) return "";
  return ask(text.data(), static_cast<int>(text.size()) - 1, handle) == CUDA_SUCCESS ? text.data() : "";
}

DeviceFacts Runtime::FactsOfDevice(int device, uint64_t budget_bytes) const {
  DeviceFacts facts;
  facts.device = device;
  facts.budget_bytes = budget_bytes;
  facts.device_bytes = total_bytes_[static_cast<size_t>(device)].load(std::memory_order_relaxed);
  facts.name = WordsOfDevice("cuDeviceGetName", device);
  facts.pci_bus_id = WordsOfDevice("cuDeviceGetPCIBusId", device);
  return facts;
}

void Runtime::StartReports() {
  const int64_t origin = os::Clock::System()->NowNanos();
  Reporter::Options options;
  options.metrics_file = settings_.metrics;
  options.local_rank = settings_.ranks.rank;
  options.status = settings_.status;
  options.waits = &waits_;
  options.advice = FactsForAdvice();
  if (!settings_.prometheus.empty()) {
    const std::string path = OutputFile::Expand(settings_.prometheus, settings_.ranks.rank);
    const auto file = std::make_shared<OutputFile>("SPILLWAY_PROMETHEUS", path, Readers::kEveryone);
    const PrometheusLabels labels = {settings_.ranks.rank, ::getpid()};
    options.writers.push_back(
        [file, labels](const Figures& figures, bool) { file->Replace(PrometheusText(figures, labels)); });
  }
  // The last, since its file is by far the largest.
  if (!settings_.report.empty()) {
    RunFacts facts = FactsForReport();
    facts.origin_nanos = origin;
    const std::string path = OutputFile::Expand(settings_.report, settings_.ranks.rank);
    const RunSource* const source = this;
    report_ = std::make_unique<RunReport>(path, std::move(facts), options.advice, source);
    options.look_often = [report = report_.get()] { report->Look(); };
    options.writers.push_back(
        [report = report_.get()](const Figures& figures, bool ended) { report->Write(figures, ended); });
  }
  reporter_ = std::make_unique<Reporter>(options, [this, origin] {
    Figures figures = CollectFigures();
    figures.seconds = static_cast<double>(os::Clock::System()->NowNanos() - origin) / 1e9;
    return figures;
  });
}

// ---- RunSource.

std::optional<RunSource::DeviceLook> Runtime::Look(int device) const {
  const auto place = static_cast<size_t>(device);
  const allocator::Residency* const residency = residencies_[place].load(std::memory_order_acquire);
  if (residency == nullptr) return std::nullopt;
  DeviceLook look{residency->Stats()};
  if (predictors_[place] == nullptr) return look;
  const PredictorStats prediction = predictors_[place]->stats();
  look.iteration_launches = prediction.iteration_launches;
  look.departures = prediction.departures;
  return look;
}

std::vector<allocator::LargeBlock> Runtime::LargestBlocks(int device, size_t most) const {
  const allocator::Residency* const residency =
      residencies_[static_cast<size_t>(device)].load(std::memory_order_acquire);
  return residency == nullptr ? std::vector<allocator::LargeBlock>() : residency->LargestBlocks(most);
}

std::vector<io::DirectoryStats> Runtime::Directories() const {
  return disk_ == nullptr ? std::vector<io::DirectoryStats>() : disk_->stats().directories;
}

std::string Runtime::NameOfLaunch(int device, policy::LaunchIndex index) const {
  const Predictor* const predictor = predictors_[static_cast<size_t>(device)].get();
  const std::optional<uint64_t> tag = predictor == nullptr ? std::nullopt : predictor->TagOf(index);
  return tag ? KernelOf(*tag) : "";
}

void Runtime::AskForIteration(int device) const {
  Predictor* const predictor = predictors_[static_cast<size_t>(device)].get();
  if (predictor != nullptr) predictor->AskForIteration();
}

std::shared_ptr<const Predictor::Followed> Runtime::LastIteration(int device) const {
  const Predictor* const predictor = predictors_[static_cast<size_t>(device)].get();
  return predictor == nullptr ? nullptr : predictor->LastIteration();
}

std::string Runtime::KernelOf(uint64_t tag) const { return NameOfTag(&GetHookState()->functions, tag); }

}  // namespace spillway::integration
