// The functions that the preload calls: open the engine, look again for PyTorch, give up in a forked child.
// And the one that PyTorch's side calls, which hands out the C ABI.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "integration/engine/audit_setup.h"
#include "integration/engine/c_api.h"
#include "integration/engine/machine.h"
#include "integration/engine/runtime.h"
#include "integration/engine/status_signal.h"
#include "integration/engine/torch_swap.h"
#include "integration/preload/shim_abi.h"
#include "integration/settings/environment.h"
#include "integration/settings/settings.h"
#include "io/os/log.h"

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

// A job that would run with other settings than its user believes must not run.
[[noreturn]] void StopJob(const std::string& message) {
  os::ReportLine(message);
  std::fflush(nullptr);
  ::_exit(kExitBadSetting);
}

Settings ReadSettingsOrStop(const spillway_shim* shim) {
  SettingSource source;
  source.value = shim->setting;
  source.described = shim->setting_source;
  source.variables = EnvironmentNames();
  std::vector<std::string> warnings;
  auto settings = ReadSettings(source, &warnings);
  if (!settings.ok()) StopJob(std::string(settings.status().message()));
  os::SetLogLevel(settings->log);
  for (const std::string& warning : warnings) os::Log(os::LogLevel::kWarn, warning);
  if (const auto directories = settings->OwnDirectories()) {
    for (const DirectoryEntry& entry : *directories) {
      const absl::Status status = CheckDirectory(entry.path);
      if (status.ok()) continue;
      const char* described = shim->setting_source("dirs");
      StopJob(absl::StrCat(described != nullptr ? described : "SPILLWAY_DIRS", "=", shim->setting("dirs"),
                           " is not accepted; accepted: writable directories (",
                           std::string(status.message()), ")"));
    }
  }
  return *std::move(settings);
}

int Open(const spillway_shim* shim) {
  if (shim->abi_version != SPILLWAY_SHIM_ABI_VERSION) {
    os::ReportLine("libspillway.so and libspillway_engine.so are of different versions");
    return 1;
  }
  Settings settings = ReadSettingsOrStop(shim);
  if (!settings.Enabled())
    return 0;  // the preload asks before it opens us, but a key of PyTorch's variable may say so, too
  if (settings.status == StatusLine::kSignal && !InstallStatusSignal()) {
    os::ReportLine("SIGUSR1 is in use by the job: no status line");
    settings.status = StatusLine::kOff;
  }
  auto deny_list = ReadDenyLists(settings);
  if (!deny_list.ok())
    StopJob(absl::StrCat("SPILLWAY_DENYLIST: ", std::string(deny_list.status().message())));
  auto runtime = Runtime::Create(shim, std::move(settings), *std::move(deny_list));
  if (!runtime.ok()) {
    os::ReportLine(std::string(runtime.status().message()));
    return 1;
  }
  Runtime::Set(runtime->release());
  std::atexit([] { Guarded("the end", [] { Runtime::Get()->Shutdown(); }); });
  g_torch_swap = new TorchSwap(shim->library_directory, GetApi());
  g_torch_swap->Try();
  return 0;
}

}  // namespace
}  // namespace spillway::integration

extern "C" {

__attribute__((visibility("default"))) int spillway_engine_open(const spillway_shim* shim) {
  int result = 1;
  spillway::integration::Guarded("the start", [&] { result = spillway::integration::Open(shim); });
  return result;
}

__attribute__((visibility("default"))) void spillway_engine_cu_init() {
  spillway::integration::Guarded("a look for PyTorch", [] {
    if (spillway::integration::g_torch_swap != nullptr) spillway::integration::g_torch_swap->Try();
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
