#include "integration/cli/job/run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/common/setting_options.h"
#include "integration/cli/doctor/driver_facts.h"
#include "integration/cli/doctor/given_settings.h"
#include "integration/cli/report/report_files.h"
#include "integration/cli/report/report_run.h"
#include "integration/engine/start_check.h"
#include "integration/settings/environment.h"
#include "integration/settings/settings.h"
#include "io/os/errno.h"

namespace spillway::integration {
namespace {

constexpr char kSubcommand[] = "run";

// Returns the bytes of each visible GPU, with which a set size is compared; empty if none is set. The driver
// is asked in this process, which the command then replaces.
std::vector<uint64_t> DevicesToCompare(const GivenSettings& given) {
  if (!given.values.contains("gpu_memory")) return {};
  const auto named = given.values.find("cuda_driver");
  const auto driver = OpenDriver(named == given.values.end() ? "" : named->second);
  return driver.ok() ? BytesOfDevices(*driver->entries)
                     : std::vector<uint64_t>();  // the job reports what is wrong
}

// Checks what a job would refuse at its start: the options, our variables, and the keys inside PyTorch's.
absl::Status Check(const std::map<std::string, std::string>& options) {
  const GivenSettings given = CollectSettings(options);
  SPILLWAY_RETURN_IF_ERROR(CheckConf(given));
  const SettingSource source = SourceOf(given, options);
  std::vector<std::string> warnings;  // the job reports them
  SPILLWAY_ASSIGN_OR_RETURN(const Settings settings, ReadSettings(source, &warnings));
  if (!settings.Enabled()) return absl::OkStatus();
  return CheckStartHere(settings, source, DevicesToCompare(given), &warnings);
}

// Handles --report FILE.html: puts the data file in its place. Returns the page, whatever folder the command
// goes to; empty: none is asked for.
std::string TakePage(std::map<std::string, std::string>* settings) {
  const auto report = settings->find("report");
  if (report == settings->end() || !AsksForPage(report->second)) return "";
  const std::string page = std::filesystem::absolute(report->second).string();
  report->second = DataPathOf(page);
  return page;
}

// Sanitizers end a process in which they are not the first library: GCC's, and clang's in their shared form.
constexpr const char* kFirstLibraries[] = {"libasan.so",         "libtsan.so",       "libhwasan.so",
                                           "liblsan.so",         "libclang_rt.asan", "libclang_rt.tsan",
                                           "libclang_rt.hwasan", "libclang_rt.lsan"};

bool MustBeFirst(absl::string_view entry) {
  const absl::string_view file = entry.substr(entry.rfind('/') == entry.npos ? 0 : entry.rfind('/') + 1);
  return std::any_of(std::begin(kFirstLibraries), std::end(kFirstLibraries),
                     [&](const char* name) { return absl::StartsWith(file, name); });
}

// Returns LD_PRELOAD with our library in front, but behind libraries that must be first.
std::string PreloadWith(const std::string& ours, const std::string& before) {
  std::vector<std::string> entries = absl::StrSplit(before, absl::ByAnyChar(": "), absl::SkipEmpty());
  const auto last = std::find_if(entries.rbegin(), entries.rend(), MustBeFirst);
  entries.insert(last.base(), ours);
  return absl::StrJoin(entries, ":");
}

// Returns the value of LD_PRELOAD for the command. Empty, with a line, if the preload cannot be loaded.
std::string Preload(const std::string& library_directory) {
  const std::string preload = absl::StrCat(library_directory, "/libspillway.so");
  if (::access(preload.c_str(), R_OK) != 0) {
    std::fprintf(stderr, "spillway: %s: %s\n", preload.c_str(), std::strerror(errno));
    return "";
  }
  if (preload.find_first_of(" :") != std::string::npos) {
    std::fprintf(
        stderr,
        "spillway: %s: the loader splits LD_PRELOAD at spaces and colons; install Spillway to a path without "
        "them\n",
        preload.c_str());
    return "";
  }
  return PreloadWith(preload, EnvironmentValue("LD_PRELOAD"));
}

// Returns whether the option `word` has its value in the next word.
bool TakesNextWord(const CLI::App& run, std::string_view word) {
  if (word.find('=') != std::string_view::npos) return false;
  const CLI::Option* const option = run.get_option_no_throw(std::string(word));
  return option != nullptr && option->get_items_expected_max() > 0;
}

}  // namespace

CLI::App* AddRun(CLI::App* app, RunOptions* options) {
  CLI::App* run =
      app->add_subcommand(kSubcommand, "Run a command under Spillway: spillway run [options] -- COMMAND...");
  AddSettingOptions(run, &options->settings);
  return run;
}

int TakeCommand(const CLI::App& run, int argc, char** argv, RunOptions* options) {
  if (argc < 2 || std::string_view(argv[1]) != kSubcommand) return argc;
  int place = 2;
  for (; place < argc; ++place) {
    const std::string_view word = argv[place];
    if (word == "--" || word.size() < 2 || word.front() != '-') break;
    const bool value_follows = place + 1 < argc && std::string_view(argv[place + 1]) != "--";
    if (value_follows && TakesNextWord(run, word)) ++place;
  }
  const bool marked = place < argc && std::string_view(argv[place]) == "--";
  options->command.assign(argv + place + (marked ? 1 : 0), argv + argc);
  if (!options->command.empty()) options->command.push_back(nullptr);
  return place;
}

int Run(RunOptions options) {
  std::map<std::string, std::string>& settings = options.settings;
  const std::string page = TakePage(&settings);
  const absl::Status status = Check(settings);
  if (!status.ok()) {
    std::string message(status.message());
    if (!page.empty()) absl::StrReplaceAll({{settings["report"], page}}, &message);  // as it was given
    std::fprintf(stderr, "spillway: %s\n", message.c_str());
    return kWrongUse;
  }
  for (const auto& [name, value] : settings)
    ::setenv(VariableOf(name).c_str(), IndependentOfFolder(name, value).c_str(), 1);
  const std::string preload = Preload(options.library_directory);
  if (preload.empty()) return kCannotRun;
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  const std::vector<char*>& arguments = options.command;
  if (!page.empty()) return RunAndReport(arguments, page, options.library_directory);
  ::execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "spillway: cannot run %s: %s\n", arguments[0], std::strerror(errno));
  return kCannotRun;
}

}  // namespace spillway::integration
