// The program `spillway`: runs a command under Spillway, examines the machine, or simulates.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "integration/cli/characterize.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/common/near_words.h"
#include "integration/cli/doctor/doctor.h"
#include "integration/cli/estimate.h"
#include "integration/cli/report.h"
#include "integration/cli/run.h"
#include "integration/cli/simulate.h"
#include "integration/cli/top.h"
#include "integration/cli/trace_files.h"

namespace spillway::integration {
namespace {

// build/bin/spillway or PREFIX/bin/spillway: the libraries lie in ../lib.
std::string LibraryDirectory() {
  char path[PATH_MAX] = {};
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  std::string program(path, length > 0 ? static_cast<size_t>(length) : 0);
  for (int up = 0; up < 2; ++up) program.resize(std::min(program.size(), program.rfind('/')));
  return absl::StrCat(program, "/lib");
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

int Main(int argc, char** argv) {
  CLI::App app{"Train models larger than the GPU's memory, unchanged."};
  app.set_version_flag("--version", absl::StrCat("spillway ", SPILLWAY_VERSION_TEXT));
  app.require_subcommand(1);

  RunOptions running;
  CLI::App* run = AddRun(&app, &running);
  running.library_directory = LibraryDirectory();

  DoctorOptions examination;
  CLI::App* doctor = AddDoctor(&app, &examination);
  examination.library_directory = LibraryDirectory();

  SimulateOptions simulation;
  CLI::App* simulate = AddSimulate(&app, &simulation);
  simulation.library_directory = LibraryDirectory();

  CharacterizeOptions characterization;
  CLI::App* characterize = AddCharacterize(&app, &characterization);

  GenerateOptions generation;
  CLI::App* generate = AddGenerate(&app, &generation);

  EstimateOptions estimation;
  CLI::App* estimate = AddEstimate(&app, &estimation);
  estimation.library_directory = LibraryDirectory();

  ReportOptions reporting;
  reporting.library_directory = LibraryDirectory();
  CLI::App* report = AddReport(&app, &reporting);

  TopOptions watching;
  CLI::App* top = AddTop(&app, &watching);

  try {
    app.parse(TakeCommand(*run, argc, argv, &running), argv);
    if (run->parsed() && running.command.empty()) throw CLI::RequiredError("COMMAND");
  } catch (const CLI::ParseError& wrong) {  // the library's way to ask for help, too
    // `spillway help nothing` names no subcommand, and CLI11 takes it for a wish for the help of all.
    const bool names_nothing = app.get_subcommands().empty() && !app.remaining().empty();
    if (names_nothing) {
      std::fprintf(stderr, "There is no subcommand %s.\nRun with --help for more information.\n",
                   app.remaining().front().c_str());
    } else if (app.exit(wrong) == 0) {
      return AfterPrinting(0);
    }
    const std::string meant = MeantWord(app);
    if (!meant.empty()) std::fprintf(stderr, "Did you mean %s?\n", meant.c_str());
    return AfterPrinting(kWrongUse);
  }
  if (simulate->parsed()) return AfterPrinting(Simulate(simulation));
  if (characterize->parsed()) return AfterPrinting(CharacterizeTrace(characterization));
  if (report->parsed()) return AfterPrinting(Report(reporting));
  if (generate->parsed()) return AfterPrinting(Generate(generation));
  if (estimate->parsed()) return AfterPrinting(RunEstimate(estimation));
  if (top->parsed()) return AfterPrinting(Top(watching));
  if (doctor->parsed()) return AfterPrinting(Doctor(examination, argv));
  return Run(running);
}

}  // namespace
}  // namespace spillway::integration

int main(int argc, char** argv) {
  // `spillway help report` is `spillway report --help`.
  std::string help = "--help";
  std::vector<char*> arguments(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    arguments.erase(arguments.begin() + 1);
    arguments.resize(std::min<size_t>(arguments.size(), 2));
    arguments.push_back(help.data());
  }
  const int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  return spillway::integration::Main(count, arguments.data());
}
