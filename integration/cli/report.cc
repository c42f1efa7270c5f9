#include "integration/cli/report.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "integration/cli/chrome_trace.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/common/workers.h"
#include "integration/cli/page_file.h"
#include "integration/cli/quantities.h"
#include "integration/cli/report_data.h"
#include "integration/cli/report_json.h"
#include "integration/cli/report_sections.h"
#include "integration/cli/trace_files.h"
#include "integration/cli/what_if.h"

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

constexpr double kMostTerabytes = 1e9, kMostWatts = 1e7, kMostPrice = 1e6;

// Where the page goes; empty: none is wanted.
std::string PageToWrite(const ReportOptions& options) {
  if (!options.output.empty()) return options.output;
  return options.json ? "" : PageOf(options.file);
}

// What the command line's library does not see.
absl::Status CheckOptions(const ReportOptions& options) {
  const ReportAssumptions& given = options.assumptions;
  const auto outside = [](double value, double most) { return !(value > 0 && value <= most); };
  if (outside(given.ssd_tbw, kMostTerabytes))
    return NotAccepted("ssd-tbw", absl::StrCat(given.ssd_tbw), "terabytes above 0, to 1e9");
  if (given.watts && outside(*given.watts, kMostWatts))
    return NotAccepted("watts", absl::StrCat(*given.watts), "watts above 0, to 1e7");
  if (given.price_per_kwh && outside(*given.price_per_kwh, kMostPrice))
    return NotAccepted("price-per-kwh", absl::StrCat(*given.price_per_kwh), "a price above 0, to 1e6");
  return absl::OkStatus();
}

bool AreOneFile(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const fs::path one = fs::weakly_canonical(a, error), other = fs::weakly_canonical(b, error);
  return !one.empty() && one == other;
}

// Before anything is written: the data of a run cannot be made again.
absl::Status CheckPaths(const ReportOptions& options) {
  const std::string page = PageToWrite(options);
  const auto refuse = [](const char* option, const std::string& path, const char* what) {
    return NotAccepted(option, path, absl::StrCat("another path than that of the ", what));
  };
  if (!page.empty() && AreOneFile(page, options.file)) return refuse("output", page, "run's data");
  if (options.chrome_trace.empty()) return absl::OkStatus();
  if (AreOneFile(options.chrome_trace, options.file))
    return refuse("chrome-trace", options.chrome_trace, "run's data");
  if (!page.empty() && AreOneFile(options.chrome_trace, page))
    return refuse("chrome-trace", options.chrome_trace, "page");
  return absl::OkStatus();
}

absl::Status WriteChromeTrace(const std::string& text, const ReportOptions& options) {
  const auto trace = ChromeTrace(text);
  if (trace.ok()) return ReplaceFile(options.chrome_trace, *trace);
  return absl::InvalidArgumentError(absl::StrCat(options.file, ": ", trace.status().message()));
}

absl::StatusOr<ReportModel> ModelOfFile(const ReportOptions& options) {
  const auto text = ReadFile(options.file);
  if (!text.ok()) return text.status();
  const auto data = ParseReport(*text);
  if (!data.ok())
    return absl::InvalidArgumentError(absl::StrCat(options.file, ": ", data.status().message()));
  if (!options.chrome_trace.empty()) {
    if (absl::Status status = WriteChromeTrace(*text, options); !status.ok()) return status;
  }
  WhatIf what_if;
  if (options.what_if) {
    Workers workers(options.threads, stderr);
    what_if = SimulateWhatIf(*data, &workers);
  } else {
    what_if.missing = "it was switched off (--no-what-if)";
  }
  return ModelOf(*data, what_if, options.assumptions);
}

}  // namespace

CLI::App* AddReport(CLI::App* app, ReportOptions* options) {
  CLI::App* report = app->add_subcommand("report", "Make a page of a run from its SPILLWAY_REPORT file");
  report->add_option("file", options->file, "The file that SPILLWAY_REPORT named")->required();
  report->add_option("--output", options->output,
                     "Write the page here (default: FILE.html beside FILE.json)");
  report->add_flag("--json", options->json,
                   "Print the page's figures as JSON; the page itself with --output alone");
  report->add_option("--chrome-trace", options->chrome_trace,
                     "Write moves and waits as a trace for Perfetto or chrome://tracing to this file");
  report->add_option_function<double>(
      "--ssd-tbw",
      [options](double value) {
        options->assumptions.ssd_tbw = value;
        options->assumptions.ssd_tbw_given = true;
      },
      "Terabytes that each drive is rated to be written (assumed: 600)");
  report->add_option("--watts", options->assumptions.watts, "Power of the job, where it could not be read");
  report->add_option("--price-per-kwh", options->assumptions.price_per_kwh, "Price of a kilowatt-hour");
  AddThreads(report, &options->threads);
  report->add_flag("!--no-what-if", options->what_if, "Simulate no other machines: no bound, and at once");
  return report;
}

std::string PageOf(const std::string& file) {
  absl::string_view stem = file;
  return absl::StrCat(absl::EndsWith(file, ".json") ? stem.substr(0, file.size() - 5) : stem, ".html");
}

absl::Status WriteReportPage(const ReportOptions& options) {
  if (absl::Status status = CheckPaths(options); !status.ok()) return status;
  auto model = ModelOfFile(options);
  if (!model.ok()) return model.status();
  return WritePage(*model, ReportFiguresJson(*model), options.library_directory, PageToWrite(options));
}

int Report(const ReportOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return Refuse(status);
  if (absl::Status status = CheckPaths(options); !status.ok()) return Refuse(status);
  if (!options.json) {
    if (absl::Status status = FindDrawingLibrary(options.library_directory); !status.ok())
      return Refuse(status);
  }
  auto model = ModelOfFile(options);
  if (!model.ok()) return Refuse(model.status());
  if (const std::string path = PageToWrite(options); !path.empty()) {
    const absl::Status written =
        WritePage(*model, ReportFiguresJson(*model), options.library_directory, path);
    if (!written.ok()) return Refuse(written);
    if (!options.json) std::printf("%s\n%s\n", model->verdict.front().c_str(), path.c_str());
  }
  if (options.json) std::fputs(ReportFiguresJson(*model).c_str(), stdout);
  return 0;
}

}  // namespace spillway::integration
