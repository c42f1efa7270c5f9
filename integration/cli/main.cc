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
#include "integration/cli/common/exit_status.h"
#include "integration/cli/common/near_words.h"
#include "integration/cli/common/trace_files.h"
#include "integration/cli/describe.h"
#include "integration/cli/doctor/doctor.h"
#include "integration/cli/estimate/estimate.h"
#include "integration/cli/job/pause.h"
#include "integration/cli/job/run.h"
#include "integration/cli/job/top.h"
#include "integration/cli/report/report.h"
#include "integration/cli/simulate/characterize.h"
#include "integration/cli/simulate/simulate.h"

namespace spillway::integration {
namespace {

// Returns ../lib of build/bin/spillway or PREFIX/bin/spillway, which has the libraries.
std::string LibraryDirectory() {
  char path[PATH_MAX] = {};
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  std::string program(path, length > 0 ? static_cast<size_t>(length) : 0);
  for (int up = 0; up < 2; ++up) program.resize(std::min(program.size(), program.rfind('/')));
  return absl::StrCat(program, "/lib");
}

// Returns the status after printing: a report that could not be written is no success, but one line on
// standard error and the status of wrong use.
int AfterPrinting(int status) {
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written) return status;
  std::fprintf(stderr, "spillway: standard output cannot be written%s%s\n", errno == 0 ? "" : ": ",
               errno == 0 ? "" : std::strerror(errno));
  return kWrongUse;
}

// The subcommands with their options, as the command line gives them.
class Program {
 public:
  Program() {
    app_.set_version_flag("--version", absl::StrCat("spillway ", SPILLWAY_VERSION_TEXT));
    app_.require_subcommand(1);
    running_.library_directory = examination_.library_directory = simulation_.library_directory =
        estimation_.library_directory = reporting_.library_directory = LibraryDirectory();
  }

  int Main(int argc, char** argv) {
    try {
      app_.parse(TakeCommand(*run_, argc, argv, &running_), argv);
      if (run_->parsed() && running_.command.empty()) throw CLI::RequiredError("COMMAND");
    } catch (const CLI::ParseError& wrong) {  // the library's way to ask for help, too
      return AfterPrinting(Explain(wrong));
    }
    if (run_->parsed()) return Run(running_);
    return AfterPrinting(CarryOut(argv));
  }

 private:
  // Prints what was wrong, or the help that was asked for. Returns the exit status.
  int Explain(const CLI::ParseError& wrong) {
    // `spillway help nothing` names no subcommand, and CLI11 takes it for a request for the help of all.
    const bool names_nothing = app_.get_subcommands().empty() && !app_.remaining().empty();
    if (names_nothing) {
      std::fprintf(stderr, "There is no subcommand %s.\nRun with --help for more information.\n",
                   app_.remaining().front().c_str());
    } else if (app_.exit(wrong) == 0) {
      return 0;
    }
    const std::string meant = MeantWord(app_);
    if (!meant.empty()) std::fprintf(stderr, "Did you mean %s?\n", meant.c_str());
    return kWrongUse;
  }

  // Runs the subcommand that was named, of those that print.
  int CarryOut(char** argv) {
    if (doctor_->parsed()) return Doctor(examination_, argv);
    if (simulate_->parsed()) return Simulate(simulation_);
    if (characterize_->parsed()) return CharacterizeTrace(characterization_);
    if (generate_->parsed()) return Generate(generation_);
    if (estimate_->parsed()) return RunEstimate(estimation_);
    if (report_->parsed()) return Report(reporting_);
    if (top_->parsed()) return Top(watching_);
    if (pause_->parsed()) return PauseJobs(pausing_);
    if (resume_->parsed()) return ResumeJobs(resuming_);
    return describe_->parsed() ? Describe(app_, description_) : kWrongUse;
  }

  CLI::App app_{"Train models larger than the GPU's memory, unchanged."};
  RunOptions running_;
  DoctorOptions examination_;
  SimulateOptions simulation_;
  CharacterizeOptions characterization_;
  GenerateOptions generation_;
  EstimateOptions estimation_;
  ReportOptions reporting_;
  TopOptions watching_;
  PauseOptions pausing_;
  PauseOptions resuming_;
  DescribeOptions description_;
  // The order is that of the help.
  CLI::App* const run_ = AddRun(&app_, &running_);
  CLI::App* const doctor_ = AddDoctor(&app_, &examination_);
  CLI::App* const simulate_ = AddSimulate(&app_, &simulation_);
  CLI::App* const characterize_ = AddCharacterize(&app_, &characterization_);
  CLI::App* const generate_ = AddGenerate(&app_, &generation_);
  CLI::App* const estimate_ = AddEstimate(&app_, &estimation_);
  CLI::App* const report_ = AddReport(&app_, &reporting_);
  CLI::App* const top_ = AddTop(&app_, &watching_);
  CLI::App* const pause_ = AddPause(&app_, &pausing_);
  CLI::App* const resume_ = AddResume(&app_, &resuming_);
  CLI::App* const describe_ = AddDescribe(&app_, &description_);
};

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
  return spillway::integration::Program().Main(count, arguments.data());
}
