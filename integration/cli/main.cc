// The program `spillway`: runs a command under Spillway, examines the machine, or simulates. Options of `run`
// are the settings of docs/environment.md. They are passed on as variables, so that one place decides what is
// accepted.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "integration/cli/characterize.h"
#include "integration/cli/common/setting_options.h"
#include "integration/cli/doctor/doctor.h"
#include "integration/cli/doctor/driver_facts.h"
#include "integration/cli/estimate.h"
#include "integration/cli/report.h"
#include "integration/cli/report_files.h"
#include "integration/cli/report_run.h"
#include "integration/cli/simulate.h"
#include "integration/cli/trace_files.h"
#include "integration/engine/start_check.h"
#include "integration/settings/environment.h"

namespace spillway::integration {
namespace {

constexpr int kCannotRun = 127;
constexpr int kWrongUse = 2;

// What the size of a GPU is compared with, where one is set: bytes of each that is visible. The driver is
// asked in this process, which the command then replaces.
std::vector<uint64_t> DevicesToCompare(const std::map<std::string, std::string>& settings) {
  if (!settings.contains("gpu_memory") && EnvironmentSetting("gpu_memory") == nullptr) return {};
  const auto named = settings.find("cuda_driver");
  const char* const variable = EnvironmentSetting("cuda_driver");
  const auto driver = OpenDriver(named != settings.end() ? named->second
                                 : variable == nullptr   ? ""
                                                         : variable);
  return driver.ok() ? BytesOfDevices(*driver->entries)
                     : std::vector<uint64_t>();  // the job says what is wrong
}

// build/bin/spillway or PREFIX/bin/spillway: the libraries lie in ../lib.
std::string LibraryDirectory() {
  char path[PATH_MAX] = {};
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  std::string program(path, length > 0 ? static_cast<size_t>(length) : 0);
  for (int up = 0; up < 2; ++up) program.resize(std::min(program.size(), program.rfind('/')));
  return absl::StrCat(program, "/lib");
}

// Of --report FILE.html: the settings with the data file in its place. Returns the page, whatever folder the command goes
// to; empty: none is asked for.
std::string TakePage(std::map<std::string, std::string>* settings) {
  const auto report = settings->find("report");
  if (report == settings->end() || !AsksForPage(report->second)) return "";
  const std::string page = std::filesystem::absolute(report->second).string();
  report->second = DataPathOf(page);
  return page;
}

// A report that could not be written is no success: one line on standard error, and the status of wrong use.
int AfterPrinting(int status) {
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written) return status;
  std::fprintf(stderr, "spillway: standard output cannot be written%s%s\n", errno == 0 ? "" : ": ",
               errno == 0 ? "" : std::strerror(errno));
  return kWrongUse;
}

// Replaces this process by `command` with the preload in front, and returns only when that fails; or runs it as a child and
// returns its status, where a page is to be made of its run.
int Run(std::map<std::string, std::string> settings, const std::vector<std::string>& command) {
  const std::string page = TakePage(&settings);
  const absl::Status status = CheckGivenSettings(settings, OptionOf, DevicesToCompare(settings));
  if (!status.ok()) {  // a job would refuse it at its start
    std::fprintf(stderr, "spillway: %s\n", std::string(status.message()).c_str());
    return kWrongUse;
  }
  for (const auto& [name, value] : settings) ::setenv(VariableOf(name).c_str(), value.c_str(), 1);
  std::string preload = absl::StrCat(LibraryDirectory(), "/libspillway.so");
  if (::access(preload.c_str(), R_OK) != 0) {
    std::fprintf(stderr, "spillway: %s: %s\n", preload.c_str(), std::strerror(errno));
    return kCannotRun;
  }
  if (preload.find_first_of(" :") != std::string::npos) {
    std::fprintf(
        stderr,
        "spillway: %s: the loader splits LD_PRELOAD at spaces and colons; install Spillway to a path without "
        "them\n",
        preload.c_str());
    return kCannotRun;
  }
  if (const std::string other = EnvironmentValue("LD_PRELOAD"); !other.empty())
    absl::StrAppend(&preload, ":", other);
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  if (!page.empty()) return RunAndReport(arguments, page, LibraryDirectory());
  ::execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "spillway: cannot run %s: %s\n", arguments[0], std::strerror(errno));
  return kCannotRun;
}

int Main(int argc, char** argv) {
  CLI::App app{"Train models larger than the GPU's memory, unchanged."};
  app.set_version_flag("--version", absl::StrCat("spillway ", SPILLWAY_VERSION_TEXT));
  app.require_subcommand(1);

  CLI::App* run =
      app.add_subcommand("run", "Run a command under Spillway: spillway run [options] -- COMMAND...");
  std::map<std::string, std::string> settings;
  AddSettingOptions(run, &settings);
  std::vector<std::string> command;
  run->add_option("command", command, "The command and its arguments")->required();
  run->positionals_at_end();

  DoctorOptions examination;
  CLI::App* doctor = AddDoctor(&app, &examination);
  examination.library_directory = LibraryDirectory();

  SimulateOptions simulation;
  CLI::App* simulate = AddSimulate(&app, &simulation);

  CharacterizeOptions characterization;
  CLI::App* characterize = AddCharacterize(&app, &characterization);

  GenerateOptions generation;
  CLI::App* generate = AddGenerate(&app, &generation);

  EstimateOptions estimation;
  CLI::App* estimate = AddEstimate(&app, &estimation);

  ReportOptions reporting;
  reporting.library_directory = LibraryDirectory();
  CLI::App* report = AddReport(&app, &reporting);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& wrong) {  // the library's way to ask for help, too
    return AfterPrinting(app.exit(wrong) == 0 ? 0 : kWrongUse);
  }
  if (simulate->parsed()) return AfterPrinting(Simulate(simulation));
  if (characterize->parsed()) return AfterPrinting(CharacterizeTrace(characterization));
  if (report->parsed()) return AfterPrinting(Report(reporting));
  if (generate->parsed()) return AfterPrinting(Generate(generation));
  if (estimate->parsed()) return AfterPrinting(RunEstimate(estimation));
  if (doctor->parsed()) return AfterPrinting(Doctor(examination, argv));
  return Run(settings, command);
}

}  // namespace
}  // namespace spillway::integration

int main(int argc, char** argv) { return spillway::integration::Main(argc, argv); }
