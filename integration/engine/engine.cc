// The functions that the preload calls: open the engine, look again for PyTorch, give up in a forked child.
// Also the one that PyTorch's side calls, which hands out the C ABI.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/driver/cuda_driver.h"
#include "integration/engine/audit_setup.h"
#include "integration/engine/c_api.h"
#include "integration/engine/not_served.h"
#include "integration/engine/request_signals.h"
#include "integration/engine/runtime.h"
#include "integration/engine/spillway.h"
#include "integration/engine/start_check.h"
#include "integration/engine/torch_swap.h"
#include "integration/preload/shim_abi.h"
#include "integration/report/output_file.h"
#include "integration/settings/environment.h"
#include "integration/settings/settings.h"
#include "io/os/log.h"
#include "io/os/log_file.h"

namespace spillway::integration {
namespace {

constexpr int kExitBadSetting = 2;

// Set once by Open, before any other thread can come here.
TorchSwap* g_torch_swap = nullptr;

// Runs `body` for a caller in C (the preload, exit). An exception from below (bad_alloc) ends here, with one
// line.
template <typename Body>
void Guarded(const char* what, Body body) {
  try {
    body();
  } catch (const std::exception& failure) {
    try {
      os::ReportLine(absl::StrCat(what, " has failed: ", failure.what()));
    } catch (const std::exception&) {  // no memory for the line either
    }
  }
}

// Ends the job: it must not run with other settings than its user believes.
[[noreturn]] void StopJob(const std::string& message) {
  os::ReportFatal(message);
  std::fflush(nullptr);
  ::_exit(kExitBadSetting);
}

SettingSource SourceOf(const spillway_shim* shim) {
  SettingSource source;
  source.value = shim->setting;
  source.described = shim->setting_source;
  source.limit = shim->limit;
  source.limit_described = shim->limit_source;
  source.variables = EnvironmentNames();
  return source;
}

void StartLog(const Settings& settings) {
  const NodeRanks& ranks = settings.ranks;
  os::SetLogLevel(settings.log);
  os::SetLogFormat(settings.log_format, ranks.launcher.empty() ? -1 : ranks.rank);
  if (ranks.size > 1) os::SetLogPlace(absl::StrCat("rank ", ranks.rank, ", pid ", ::getpid()));
  if (settings.log_file.empty() || !settings.Enabled()) return;
  const absl::Status status = os::OpenLogFile(OutputFile::Expand(settings.log_file, ranks.rank));
  if (!status.ok())
    os::Log(os::LogLevel::kWarn,
            absl::StrCat("cannot write SPILLWAY_LOG_FILE: ", std::string(status.message())));
}

Settings ReadSettingsOrStop(const SettingSource& source) {
  std::vector<std::string> warnings;
  auto settings = ReadSettings(source, &warnings);
  if (!settings.ok()) StopJob(std::string(settings.status().message()));
  StartLog(*settings);
  for (const std::string& warning : warnings) os::Log(os::LogLevel::kWarn, warning);
  return *std::move(settings);
}

void CheckStartOrStop(const spillway_shim* shim, const Settings& settings, const SettingSource& source) {
  const auto driver = allocator::CudaDriver::Load(shim->real);
  std::vector<std::string> warnings;
  const absl::Status status = CheckStartHere(
      settings, source, driver.ok() ? BytesOfDevices(**driver) : std::vector<uint64_t>(), &warnings);
  if (!status.ok()) StopJob(std::string(status.message()));
  for (const std::string& warning : warnings) os::Log(os::LogLevel::kWarn, warning);
}

int CheckPairs(std::span<const char* const> names, std::span<const char* const> values, char* text,
               size_t bytes) {
  std::map<std::string, std::string> given;
  for (size_t i = 0; i < names.size(); ++i) given[names[i]] = values[i];
  const absl::Status status = CheckGivenSettings(given, [](const std::string& name) { return name; }, {});
  if (bytes > 0) std::snprintf(text, bytes, "%s", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

void FindTorch() {
  g_torch_swap->Try();
  // The first driver call of PyTorch's own allocator shows that PyTorch has come, if nothing else does.
  GetHookState()->before_external_allocation.store(g_torch_swap->settled() ? nullptr
                                                                           : &spillway_engine_cu_init);
  const std::string version = g_torch_swap->installed_version();
  if (!version.empty()) Runtime::Get()->RecordFramework(absl::StrCat("PyTorch ", version));
}

int Open(const spillway_shim* shim) {
  if (shim->abi_version != SPILLWAY_SHIM_ABI_VERSION) {
    os::ReportLine("libspillway.so and libspillway_engine.so are of different versions");
    return 1;
  }
  const SettingSource source = SourceOf(shim);
  Settings settings = ReadSettingsOrStop(source);
  if (!settings.Enabled())
    return 0;  // the preload asks before it opens us, but a key of PyTorch's variable may be off, too
  CheckStartOrStop(shim, settings, source);
  if (settings.status == StatusLine::kSignal && !InstallRequestSignal(SignalRequest::kStatus)) {
    os::ReportLine("SIGUSR1 is in use by the job: no status line");
    settings.status = StatusLine::kOff;
  }
  if (settings.pause == PauseBy::kSignal && !InstallRequestSignal(SignalRequest::kPause)) {
    os::ReportLine("SIGUSR2 is in use by the job: it does not pause");
    settings.pause = PauseBy::kOff;
  }
  auto deny_list = ReadDenyLists(settings);
  if (!deny_list.ok())
    StopJob(absl::StrCat("SPILLWAY_DENYLIST: ", std::string(deny_list.status().message())));
  const IfNotServed if_not = IfNot(settings);
  auto runtime = Runtime::Create(shim, std::move(settings), *std::move(deny_list));
  if (!runtime.ok()) {
    os::ReportLine(std::string(runtime.status().message()));
    return 1;
  }
  // If SPILLWAY_REQUIRE is off, the first block reports it: a process that never asks for one misses nothing.
  if (const absl::Status status = (*runtime)->Followable(); !status.ok() && if_not == IfNotServed::kEndJob)
    ReportNotServed(std::string(status.message()), if_not);
  Runtime::Set(runtime->release());
  std::atexit([] { Guarded("the end", [] { Runtime::Get()->Shutdown(); }); });
  g_torch_swap = new TorchSwap(shim->library_directory, GetApi(), if_not);
  FindTorch();
  return 0;
}

}  // namespace
}  // namespace spillway::integration

extern "C" {

__attribute__((visibility("default"))) int spillway_engine_check_settings(const char* const* names,
                                                                          const char* const* values,
                                                                          size_t count, char* text,
                                                                          size_t bytes) {
  int result = 1;
  spillway::integration::Guarded("a check of settings", [&] {
    result = spillway::integration::CheckPairs({names, count}, {values, count}, text, bytes);
  });
  return result;
}

__attribute__((visibility("default"))) int spillway_engine_open(const spillway_shim* shim) {
  int result = 1;
  spillway::integration::Guarded("the start", [&] { result = spillway::integration::Open(shim); });
  return result;
}

__attribute__((visibility("default"))) void spillway_engine_cu_init() {
  spillway::integration::Guarded("the search for PyTorch", [] {
    if (spillway::integration::g_torch_swap != nullptr) spillway::integration::FindTorch();
  });
}

__attribute__((visibility("default"))) const spillway_api* spillway_engine_api() {
  return spillway::integration::GetApi();
}

__attribute__((visibility("default"))) void spillway_engine_fork_child() {
  spillway::integration::Guarded("a fork", [] {
    if (auto* runtime = spillway::integration::Runtime::Get()) runtime->AbandonAfterFork();
  });
}

}  // extern "C"
