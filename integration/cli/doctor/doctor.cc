#include "integration/cli/doctor/doctor.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/common/progress_bar.h"
#include "integration/cli/common/setting_options.h"
#include "integration/cli/doctor/choice.h"
#include "integration/cli/doctor/directory_facts.h"
#include "integration/cli/doctor/doctor_report.h"
#include "integration/cli/doctor/driver_facts.h"
#include "integration/cli/doctor/given_settings.h"
#include "integration/cli/doctor/machine_facts.h"
#include "integration/cli/doctor/torch_facts.h"
#include "integration/engine/start_check.h"
#include "integration/engine/torch_swap.h"
#include "integration/settings/environment.h"
#include "integration/settings/setting_values.h"
#include "io/os/bytes_text.h"
#include "io/os/errno.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

constexpr double kQuickSeconds = 1;
constexpr double kMaxSeconds = 3600;
constexpr uint64_t kMinRatedWrites = 1'000'000'000;
constexpr auto kLinkTime = std::chrono::milliseconds(500);
constexpr auto kQuickLinkTime = std::chrono::milliseconds(100);

InstallationFacts InspectInstallation(const std::string& directory) {
  InstallationFacts facts;
  facts.directory = directory;
  for (const char* name : {"libspillway.so", "libspillway_engine.so"}) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (::access(path.c_str(), R_OK) != 0) facts.missing.push_back(path);
  }
  facts.served = TorchVersionsIn(directory);
  if (!facts.missing.empty()) return facts;
  // The engine's needs are checked now, not when a job starts. It is never closed.
  const std::string engine = absl::StrCat(directory, "/libspillway_engine.so");
  if (::dlopen(engine.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    const char* const why = ::dlerror();
    facts.engine_problem = why == nullptr ? "not known why" : why;
  }
  return facts;
}

absl::Status OptionNotAccepted(const char* option, const std::string& value, absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat(option, "=", value, " is invalid; expected: ", accepted));
}

absl::Status ReadOptions(const DoctorOptions& options, DoctorFacts* facts) {
  if (!(options.disk_seconds >= 0 && options.disk_seconds <= kMaxSeconds))
    return OptionNotAccepted("--disk-seconds", absl::StrCat(options.disk_seconds), "0 to 3600");
  if (options.ssd_writes.empty()) return absl::OkStatus();
  const auto writes = ParseSize(options.ssd_writes, Percent::kRefused);
  if (!writes.ok()) return OptionNotAccepted("--ssd-writes", options.ssd_writes, writes.status().message());
  // A smaller number was meant in terabytes, without the unit.
  if (writes->bytes < kMinRatedWrites)
    return OptionNotAccepted("--ssd-writes", options.ssd_writes,
                             "a size with its unit, from 1GB on, as in 600TB");
  facts->rated_writes = writes->bytes;
  return absl::OkStatus();
}

// Finds the facts that only a job's settings and this machine give together.
void InspectRest(const DoctorOptions& options, const Settings& settings, const SettingSource& source,
                 ProgressBar* bar, DoctorFacts* facts) {
  DriverOptions driver;
  driver.path = settings.cuda_driver;
  driver.host_bytes = facts->system.memory.available_bytes;
  driver.link_time = options.quick ? kQuickLinkTime : kLinkTime;
  driver.link_progress = [bar](int device, double part) {
    bar->Show(absl::StrCat("GPU ", device, ": copying"), part, "");
  };
  facts->driver = InspectDriver(driver);
  facts->limits = InspectLimits();

  MachineFacts machine = InspectMachine(settings);
  for (const DeviceFacts& device : facts->driver.devices) machine.device_bytes.push_back(device.bytes);
  facts->files = machine.files;
  if (settings.Enabled())
    facts->refusal = std::string(CheckStart(settings, source, machine, &facts->warnings).message());
  if (settings.Observes()) facts->disk_unused = "SPILLWAY=observe moves nothing";
  if (settings.on_full == OnFull::kError) facts->disk_unused = "SPILLWAY_ON_FULL=error evicts nothing";

  DiskOptions disk;
  const double seconds = options.quick ? std::min(options.disk_seconds, kQuickSeconds) : options.disk_seconds;
  disk.time = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  disk.progress = [bar](const std::string& path, const io::DiskProgress& now) {
    bar->Show(absl::StrCat(path, now.op == io::IoOp::kWrite ? ": writing" : ": reading"), now.part,
              absl::StrFormat("%s in %.1f s", os::BytesText(now.bytes), now.seconds));
  };
  facts->disk_rates = seconds > 0;
  facts->dirs_named = settings.dirs.has_value();
  facts->disks = InspectDisks(settings, machine.directories, disk);
  if (!facts->dirs_named && !facts->disks.empty()) facts->faster_mount = FasterThan(facts->disks.front());
  bar->Clear();
}

absl::StatusOr<DoctorFacts> Gather(const DoctorOptions& options) {
  DoctorFacts facts;
  SPILLWAY_RETURN_IF_ERROR(ReadOptions(options, &facts));
  facts.given = CollectSettings(options.settings);
  SPILLWAY_RETURN_IF_ERROR(CheckConf(facts.given));
  const SettingSource source = SourceOf(facts.given, options.settings);
  SPILLWAY_ASSIGN_OR_RETURN(const Settings settings, ReadSettings(source, &facts.warnings));
  facts.given.off = !settings.Enabled();
  facts.origins = OriginsOf(source);
  facts.most_gpu_memory = settings.most_gpu_memory;
  facts.most_host_memory = settings.most_host_memory;
  facts.ranks = settings.ranks;
  facts.installation_only = options.installation;
  facts.installation = InspectInstallation(options.library_directory);
  facts.system = InspectSystem();
  facts.torch = AskPython(options.python, EnvironmentValue("PATH"));
  facts.torch.loads |= options.preloaded;
  if (options.installation) return facts;
  ProgressBar bar(stderr, ::isatty(STDERR_FILENO) != 0);
  InspectRest(options, settings, source, &bar, &facts);
  return facts;
}

// Starts this process again without the preload: with it, the driver's answers would be those that a job
// gets. Returns if that is not needed, or fails.
void LeavePreload(char** arguments) {
  std::vector<std::string> kept;
  bool ours = false;
  for (const absl::string_view entry :
       absl::StrSplit(EnvironmentValue("LD_PRELOAD"), absl::ByAnyChar(": "))) {
    const bool is_ours = absl::EndsWith(entry, "/libspillway.so") || entry == "libspillway.so";
    ours |= is_ours;
    if (!is_ours && !entry.empty()) kept.emplace_back(entry);
  }
  if (!ours) return;
  ::setenv("LD_PRELOAD", absl::StrJoin(kept, ":").c_str(), 1);
  std::vector<char*> again;
  for (char** argument = arguments; *argument != nullptr; ++argument) again.push_back(*argument);
  std::string flag = "--preloaded";
  again.push_back(flag.data());
  again.push_back(nullptr);
  ::execv("/proc/self/exe", again.data());
}

}  // namespace

CLI::App* AddDoctor(CLI::App* app, DoctorOptions* options) {
  CLI::App* doctor =
      app->add_subcommand("doctor", "Check this machine: what works, what to fix, which settings to use");
  AddSettingOptions(doctor, &options->settings);
  doctor->add_option("--python", options->python, "The Python that has PyTorch (default: the first in PATH)");
  doctor->add_option("--disk-seconds", options->disk_seconds,
                     "Seconds to write and read in each spill directory (default 10; 0: not at all)");
  doctor->add_flag("--quick", options->quick, "Measure briefly: 1 s for each directory");
  doctor->add_option("--ssd-writes", options->ssd_writes,
                     "Rated writes of the drive, such as 600TB: reports how many days of writing that is");
  doctor->add_flag("--json", options->json, "The same as JSON (docs/doctor.md)");
  doctor->add_flag("--installation", options->installation,
                   "Check only what is installed, for building an image on a machine without a GPU");
  doctor->add_flag("--preloaded", options->preloaded)->group("");  // set by LeavePreload
  return doctor;
}

int Doctor(const DoctorOptions& options, char** arguments) {
  LeavePreload(arguments);
  os::SetLogLevel(os::LogLevel::kError);  // warnings of the probes are findings
  auto facts = Gather(options);
  if (!facts.ok()) {
    std::fprintf(stderr, "spillway: %s\n", std::string(facts.status().message()).c_str());
    return kWrongUse;
  }
  DoctorReport report;
  report.facts = *std::move(facts);
  report.findings = Judge(report.facts);
  if (!options.installation) report.settings = ChooseSettings(report.facts);
  std::fputs((options.json ? ReportJson(report) : ReportText(report)).c_str(), stdout);
  return ExitStatus(report);
}

}  // namespace spillway::integration
