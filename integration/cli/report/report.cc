#include "integration/cli/report/report.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/common/quantities.h"
#include "integration/cli/common/trace_files.h"
#include "integration/cli/common/workers.h"
#include "integration/cli/page/page_file.h"
#include "integration/cli/page/report_json.h"
#include "integration/cli/page/report_text.h"
#include "integration/cli/report/change_causes.h"
#include "integration/cli/report/changes_page.h"
#include "integration/cli/report/chrome_trace.h"
#include "integration/cli/report/ranks_page.h"
#include "integration/cli/report/report_data.h"
#include "integration/cli/report/report_sections.h"
#include "integration/cli/report/run_changes.h"
#include "integration/cli/report/what_if.h"

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

constexpr double kMaxTerabytes = 1e9, kMaxWatts = 1e7, kMaxPrice = 1e6;

// Returns "x.html" for "x.json".
std::string PageOf(const std::string& file) {
  absl::string_view stem = file;
  return absl::StrCat(absl::EndsWith(file, ".json") ? stem.substr(0, file.size() - 5) : stem, ".html");
}

bool PrintsAlone(const ReportOptions& options) {
  return (options.json || options.text) && options.output.empty();
}

// Returns the path of the page; empty: none is wanted.
std::string PageToWrite(const ReportOptions& options, const std::vector<ReportedRun>& runs) {
  if (PrintsAlone(options)) return "";
  return options.output.empty() ? DefaultPage(runs) : options.output;
}

// Checks what the command line's library does not.
absl::Status CheckOptions(const ReportOptions& options) {
  const ReportAssumptions& given = options.assumptions;
  const auto outside = [](double value, double most) { return !(value > 0 && value <= most); };
  if (outside(given.ssd_tbw, kMaxTerabytes))
    return NotAccepted("ssd-tbw", absl::StrCat(given.ssd_tbw), "terabytes above 0, to 1e9");
  if (given.watts && outside(*given.watts, kMaxWatts))
    return NotAccepted("watts", absl::StrCat(*given.watts), "watts above 0, to 1e7");
  if (given.price_per_kwh && outside(*given.price_per_kwh, kMaxPrice))
    return NotAccepted("price-per-kwh", absl::StrCat(*given.price_per_kwh), "a price above 0, to 1e6");
  return absl::OkStatus();
}

bool AreOneFile(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const fs::path one = fs::weakly_canonical(a, error), other = fs::weakly_canonical(b, error);
  return !one.empty() && one == other;
}

// Checks the paths before anything is written, since the data of a run cannot be made again.
absl::Status CheckPaths(const ReportOptions& options, const std::vector<ReportedRun>& runs,
                        const std::string& page) {
  const auto refuse = [](const char* option, const std::string& path, const char* what) {
    return NotAccepted(option, path, absl::StrCat("another path than that of the ", what));
  };
  for (const ReportedRun& run : runs) {
    for (const RankFile& rank : run.ranks) {
      if (!page.empty() && AreOneFile(page, rank.path)) return refuse("output", page, "run's data");
      if (!options.chrome_trace.empty() && AreOneFile(options.chrome_trace, rank.path))
        return refuse("chrome-trace", options.chrome_trace, "run's data");
    }
  }
  if (!page.empty() && !options.chrome_trace.empty() && AreOneFile(options.chrome_trace, page))
    return refuse("chrome-trace", options.chrome_trace, "page");
  return absl::OkStatus();
}

// Checks that there is one run, the ranks of one, or two runs.
absl::Status CheckRuns(const ReportOptions& options, const std::vector<ReportedRun>& runs) {
  if (runs.size() > 2) {
    std::vector<std::string> names;
    for (const ReportedRun& run : runs) names.push_back(run.name);
    return absl::InvalidArgumentError(
        absl::StrCat("these are ", runs.size(),
                     " runs, since commands, times or ranks do not fit: ", absl::StrJoin(names, ", "),
                     "; expected: files of one job, or of two; --as ranks takes all for one job's"));
  }
  if (options.files_are == FilesAre::kRuns && runs.size() != 2)
    return NotAccepted("as", "runs", "two files or folders beside it, a run each");
  const bool one_file = runs.size() == 1 && runs.front().ranks.size() == 1;
  if (!options.chrome_trace.empty() && !one_file)
    return NotAccepted("chrome-trace", options.chrome_trace, "one file of a run beside it, not several");
  return absl::OkStatus();
}

absl::Status WriteChromeTrace(const RankFile& rank, const std::string& path) {
  const auto text = ReadFile(rank.path);
  if (!text.ok()) return text.status();
  const auto trace = ChromeTrace(*text);
  if (trace.ok()) return ReplaceFile(path, *trace);
  return absl::InvalidArgumentError(absl::StrCat(rank.path, ": ", trace.status().message()));
}

WhatIf WhatIfOf(const ReportData& data, const ReportOptions& options) {
  WhatIf what_if;
  if (options.what_if) {
    Workers workers(options.threads, stderr);
    return SimulateWhatIf(data, &workers);
  }
  what_if.missing = "it was switched off (--no-what-if)";
  return what_if;
}

// The rank that stands for the run, and its own model.
struct ChosenRank {
  JobRanks ranks;
  ReportFacts facts;
  WhatIf what_if;
  const ReportData* data = nullptr;
  RunLabel label;
};

ChosenRank Choose(const ReportedRun& run, std::string name, const ReportOptions& options) {
  ChosenRank chosen{RanksOf(run, options.assumptions), {}, {}, nullptr, {std::move(name), ""}};
  chosen.data = &run.ranks[chosen.ranks.slowest].data;
  chosen.what_if = WhatIfOf(*chosen.data, options);
  chosen.facts = FactsOf(*chosen.data, chosen.what_if, options.assumptions);
  if (run.ranks.size() > 1)
    chosen.label.rank = absl::StrCat(
        chosen.ranks.names[chosen.ranks.slowest],
        chosen.ranks.by == SlowestBy::kNothing ? ", the first of " : ", the slowest of ", run.ranks.size());
  return chosen;
}

ReportModel ModelOfRuns(const std::vector<ReportedRun>& runs, const ReportOptions& options) {
  if (runs.size() == 2) {
    const auto [before_name, after_name] = ShortNames(runs[0].name, runs[1].name);
    const ChosenRank before = Choose(runs[0], before_name, options);
    const ChosenRank after = Choose(runs[1], after_name, options);
    const ComparedRun one{before.data, &before.facts}, other{after.data, &after.facts};
    RunChanges changes = ChangesOf(one, other);
    FindCauses(&changes);
    return ChangesModel(one, other, changes, before.label, after.label);
  }
  const ReportedRun& run = runs.front();
  const ChosenRank chosen = Choose(run, "", options);
  ReportModel model = ModelOf(*chosen.data, chosen.what_if, options.assumptions);
  return run.ranks.size() == 1 ? model : RanksModel(run, chosen.ranks, std::move(model));
}

// The files that were read, and the path of the page.
struct Read {
  std::vector<ReportedRun> runs;
  std::string page;  // empty: none
};

absl::StatusOr<Read> ReadAndCheck(const ReportOptions& options) {
  auto runs = ReadRuns(options.files, options.files_are);
  if (!runs.ok()) return runs.status();
  if (absl::Status status = CheckRuns(options, *runs); !status.ok()) return status;
  Read read{*std::move(runs), ""};
  read.page = PageToWrite(options, read.runs);
  if (absl::Status status = CheckPaths(options, read.runs, read.page); !status.ok()) return status;
  if (options.chrome_trace.empty()) return read;
  if (absl::Status status = WriteChromeTrace(read.runs[0].ranks[0], options.chrome_trace); !status.ok())
    return status;
  return read;
}

}  // namespace

CLI::App* AddReport(CLI::App* app, ReportOptions* options) {
  CLI::App* report = app->add_subcommand("report", "Make a page of a run from its SPILLWAY_REPORT file");
  report
      ->add_option(
          "file", options->files,
          "Files that SPILLWAY_REPORT named, or folders of such: of a run, of all ranks of a job, or "
          "of two runs to compare")
      ->required();
  report
      ->add_option(
          "--as", options->files_are,
          "Meaning of several files: ranks of one job, or two runs (default: by their commands, times and "
          "ranks)")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, FilesAre>{{"ranks", FilesAre::kRanks}, {"runs", FilesAre::kRuns}}));
  report->add_option("--output", options->output,
                     "Write the page here (default: FILE.html beside FILE.json; ranks.html; A-to-B.html)");
  CLI::Option* const json = report->add_flag(
      "--json", options->json, "Print the page's figures as JSON; the page itself with --output alone");
  report->add_flag("--text", options->text, "Print them as text; the page itself with --output alone")
      ->excludes(json);
  report->add_option("--chrome-trace", options->chrome_trace,
                     "Write moves and waits as a trace for Perfetto or chrome://tracing to this file");
  report->add_option_function<double>(
      "--ssd-tbw",
      [options](double value) {
        options->assumptions.ssd_tbw = value;
        options->assumptions.ssd_tbw_given = true;
      },
      "Rated writes of each drive in terabytes (default: 600)");
  report->add_option("--watts", options->assumptions.watts, "Power of the job, if it could not be read");
  report->add_option("--price-per-kwh", options->assumptions.price_per_kwh, "Price of a kilowatt-hour");
  AddThreads(report, &options->threads);
  report->add_flag("!--no-what-if", options->what_if,
                   "Simulate no other machines: fast, and without a bound");
  return report;
}

std::string DefaultPage(const std::vector<ReportedRun>& runs) {
  const ReportedRun& first = runs.front();
  const fs::path folder = fs::path(first.ranks.front().path).parent_path();
  if (runs.size() == 1)
    return first.ranks.size() == 1 ? PageOf(first.ranks.front().path) : (folder / "ranks.html").string();
  const auto [before, after] = ShortNames(first.name, runs.back().name);
  const std::string name = absl::StrCat(before, "-to-", after, ".html");
  // The page of two folders goes beside them.
  std::error_code error;
  const bool is_folder = fs::is_directory(first.name, error);
  return ((is_folder ? folder.parent_path() : folder) / absl::StrReplaceAll(name, {{"/", "-"}})).string();
}

absl::Status WriteReportPage(const ReportOptions& options) {
  const auto read = ReadAndCheck(options);
  if (!read.ok()) return read.status();
  const ReportModel model = ModelOfRuns(read->runs, options);
  return WritePage(model, ReportMetricsJson(model), options.library_directory, read->page);
}

int Report(const ReportOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return Refuse(status);
  if (!PrintsAlone(options)) {
    if (absl::Status status = FindDrawingLibrary(options.library_directory); !status.ok())
      return Refuse(status);
  }
  const auto read = ReadAndCheck(options);
  if (!read.ok()) return Refuse(read.status());
  const ReportModel model = ModelOfRuns(read->runs, options);
  if (!read->page.empty()) {
    const absl::Status written =
        WritePage(model, ReportMetricsJson(model), options.library_directory, read->page);
    if (!written.ok()) return Refuse(written);
  }
  if (options.json)
    std::fputs(ReportMetricsJson(model).c_str(), stdout);
  else if (options.text)
    std::fputs(ReportText(model).c_str(), stdout);
  else
    std::printf("%s\n%s\n", model.verdict.front().c_str(), read->page.c_str());
  return 0;
}

}  // namespace spillway::integration
