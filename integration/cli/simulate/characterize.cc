#include "integration/cli/simulate/characterize.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/common/quantities.h"
#include "integration/cli/common/trace_files.h"
#include "policy/offline/characterization.h"

namespace spillway::integration {
namespace {

using policy::Characterization;
using policy::SizeClass;

constexpr const char* kSizeNames[] = {"under 1 MB", "1 to 10 MB", "10 to 100 MB", "100 MB to 1 GB",
                                      "1 GB and more"};
constexpr const char* kIdleKeys[] = {"10us", "100us", "1ms", "10ms", "100ms", "1s"};

// A whole of 0 has no percentage.
void AppendPercent(int width, double part, double whole, std::string* text) {
  if (whole > 0) {
    absl::StrAppendFormat(text, " %*.1f", width, 100 * part / whole);
  } else {
    absl::StrAppendFormat(text, " %*s", width, "-");
  }
}

void AppendRow(const char* name, const SizeClass& row, std::string* text) {
  absl::StrAppendFormat(text, "%-15s %8d %9.3f %10d", name, row.tensors, static_cast<double>(row.bytes) / 1e9,
                        row.intervals);
  for (uint32_t longer : row.longer) AppendPercent(6, longer, row.intervals, text);
  AppendPercent(6, row.dead, row.intervals, text);
  AppendPercent(8, static_cast<double>(row.movable_bytes), static_cast<double>(row.interval_bytes), text);
  absl::StrAppend(text, "\n");
}

std::string Text(const policy::Workload& workload, const Characterization& found, double rate) {
  std::string text = absl::StrFormat(
      "%d kernels, %.3f s; %.3f GB live at the peak\n"
      "a kernel uses %.2f %% of that (mean over the kernels; %.2f %% over time; %.2f %% at most)\n\n",
      workload.kernels.size(), static_cast<double>(workload.IdealTime()) / 1e9,
      static_cast<double>(found.peak_live_bytes) / 1e9, 100 * found.active.by_kernel,
      100 * found.active.by_time, 100 * found.active.most);
  absl::StrAppend(&text,
                  "tensors            count        GB       idle   % of the idle intervals longer than       "
                  "  % dead  movable\n",
                  "                                   intervals   10us  100us    1ms   10ms  100ms     1s"
                  "        % bytes\n");
  for (size_t i = 0; i < found.sizes.size(); ++i) AppendRow(kSizeNames[i], found.sizes[i], &text);
  AppendRow("all", found.all, &text);
  absl::StrAppendFormat(
      &text,
      "\ndead: what lies there is not read again. movable: of the bytes of the others, those idle for "
      "longer than\nthey take to leave and to return at %.2f GB/s.\n",
      rate / 1e9);
  return text;
}

nlohmann::ordered_json RowJson(const SizeClass& row) {
  nlohmann::ordered_json longer;
  for (size_t i = 0; i < row.longer.size(); ++i) longer[kIdleKeys[i]] = row.longer[i];
  return {{"least_bytes", row.least_bytes},
          {"tensors", row.tensors},
          {"bytes", row.bytes},
          {"idle_intervals", row.intervals},
          {"idle_intervals_longer_than", longer},
          {"dead_intervals", row.dead},
          {"interval_bytes", row.interval_bytes},
          {"movable_bytes", row.movable_bytes}};
}

std::string RowsJson(const policy::Workload& workload, const Characterization& found, double rate) {
  nlohmann::ordered_json rows = {{"kernels", workload.kernels.size()},
                                 {"ideal_us", static_cast<double>(workload.IdealTime()) / 1e3},
                                 {"rate_bytes_per_second", rate},
                                 {"peak_live_bytes", found.peak_live_bytes},
                                 {"active_percent_by_kernel", 100 * found.active.by_kernel},
                                 {"active_percent_by_time", 100 * found.active.by_time},
                                 {"active_percent_most", 100 * found.active.most},
                                 {"all", RowJson(found.all)}};
  for (const SizeClass& row : found.sizes) rows["sizes"].push_back(RowJson(row));
  return rows.dump(2) + "\n";
}

}  // namespace

CLI::App* AddCharacterize(CLI::App* app, CharacterizeOptions* options) {
  CLI::App* const characterize = app->add_subcommand(
      "characterize", "Describe a trace's use of memory: active parts, sizes, idle times");
  characterize->add_option("--trace", options->trace, "As for `spillway simulate`")->required();
  characterize->add_option(
      "--rate", options->rate,
      "Bytes/s at which a tensor leaves and returns, for what is movable (default 6.5e9)");
  characterize->add_flag("--json", options->json, "Print JSON");
  return characterize;
}

int CharacterizeTrace(const CharacterizeOptions& options) {
  double rate = 0;
  absl::Status status = ReadRate("rate", options.rate, &rate);
  absl::StatusOr<policy::Workload> workload;
  if (status.ok()) {
    workload = ReadTrace(options.trace);
    status = workload.status();
  }
  if (!status.ok()) {
    std::fprintf(stderr, "spillway: %s\n", std::string(status.message()).c_str());
    return kWrongUse;
  }
  const Characterization found = policy::Characterize(*workload, rate);
  std::fputs((options.json ? RowsJson(*workload, found, rate) : Text(*workload, found, rate)).c_str(),
             stdout);
  return 0;
}

}  // namespace spillway::integration
