#include "integration/cli/simulate/sweep.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "integration/cli/common/quantities.h"
#include "integration/cli/common/units.h"
#include "integration/cli/simulate/simulate_report.h"

namespace spillway::integration {
namespace {

constexpr double kMaxSweepRows = 1000;

using Field = std::string SimulateOptions::*;

// An option that may be swept, and the other option that gets its value.
struct Swept {
  const char* name;
  const char* short_name;
  SweepUnit unit;
  Field field, second;
};
constexpr Swept kSwept[] = {
    {"gpu-memory", "gpu", SweepUnit::kBytes, &SimulateOptions::gpu_memory, nullptr},
    {"host-memory", "host", SweepUnit::kBytes, &SimulateOptions::host_memory, nullptr},
    {"ssd", "ssd", SweepUnit::kBytesPerSecond, &SimulateOptions::ssd_read, &SimulateOptions::ssd_write},
    {"ssd-read", "ssd-read", SweepUnit::kBytesPerSecond, &SimulateOptions::ssd_read, nullptr},
    {"ssd-write", "ssd-write", SweepUnit::kBytesPerSecond, &SimulateOptions::ssd_write, nullptr},
    {"pcie", "pcie", SweepUnit::kBytesPerSecond, &SimulateOptions::pcie_in, &SimulateOptions::pcie_out},
    {"pcie-in", "pcie-in", SweepUnit::kBytesPerSecond, &SimulateOptions::pcie_in, nullptr},
    {"pcie-out", "pcie-out", SweepUnit::kBytesPerSecond, &SimulateOptions::pcie_out, nullptr},
};

struct Sweep {
  const Swept* swept = nullptr;
  double first = 0, increment = 0;
  int rows = 0;
};

absl::StatusOr<Sweep> ParseSweep(const std::string& text) {
  const auto wrong = [&text](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("sweep=", text, " is invalid: ", why, "; expected: ", SweepForm()));
  };
  const std::vector<std::string> sides = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const std::vector<std::string> values = absl::StrSplit(sides.back(), ':');
  Sweep sweep;
  for (const Swept& swept : kSwept) {
    if (sides[0] == swept.name || sides[0] == swept.short_name) sweep.swept = &swept;
  }
  if (sweep.swept == nullptr) return wrong(absl::StrCat("'", sides[0], "' cannot be swept"));
  if (sides.size() != 2 || values.size() != 3) return wrong("it needs a first value, a last one and a step");
  double last = 0;
  double* const numbers[] = {&sweep.first, &last, &sweep.increment};
  for (size_t i = 0; i < values.size(); ++i) {
    const auto parsed = ParseQuantity(values[i]);
    if (!parsed.ok()) return wrong(parsed.status().message());
    *numbers[i] = *parsed;
  }
  if (sweep.increment <= 0) return wrong("the step must be more than 0");
  if (last < sweep.first) return wrong("the last value is less than the first");
  const double increments = (last - sweep.first) / sweep.increment;
  if (increments >= kMaxSweepRows) return wrong("more than 1000 values");
  sweep.rows = 1 + static_cast<int>(std::floor(increments + 1e-9));
  return sweep;
}

// Returns the value exactly, and as short as possible.
std::string ValueText(double value, SweepUnit unit) {
  struct Unit {
    const char* name;
    double factor;
  };
  constexpr Unit kSizes[] = {{"GiB", 0x1p30}, {"GB", 1e9}, {"MiB", 0x1p20}, {"MB", 1e6}};
  const std::string plain = absl::StrFormat("%.0f", value);
  if (unit == SweepUnit::kBytesPerSecond) {
    const std::string text = absl::StrFormat("%.6gGB/s", value / 1e9);
    const auto again = ParseQuantity(text);
    return again.ok() && *again == value ? text : plain;
  }
  for (const Unit& one : kSizes) {
    const double whole = value / one.factor;
    if (whole == std::floor(whole)) return absl::StrFormat("%.0f%s", whole, one.name);
  }
  return plain;
}

absl::StatusOr<SweepRow> RunRow(const SimulateOptions& options, const policy::Workload& workload,
                                const Swept& swept, double value) {
  SweepRow row;
  row.option = swept.name;
  row.unit = swept.unit;
  row.value = std::floor(value);
  row.value_text = ValueText(row.value, swept.unit);
  SimulateOptions one = options;
  one.*(swept.field) = row.value_text;
  if (swept.second != nullptr) one.*(swept.second) = row.value_text;
  auto result = RunOne(one, workload);
  if (result.ok()) {
    row.result = *std::move(result);
    row.result.execution.read_waits.clear();  // as long as the trace, of no use here
    return row;
  }
  if (!absl::IsResourceExhausted(result.status())) return result.status();
  row.problem = std::string(result.status().message());
  return row;
}

}  // namespace

std::string SweepForm() {
  std::string names;
  for (const Swept& swept : kSwept) absl::StrAppend(&names, names.empty() ? "" : ", ", swept.name);
  return absl::StrCat("NAME=FIRST:LAST:STEP, for example gpu-memory=16GiB:80GiB:8GiB; NAME is one of ",
                      names);
}

absl::StatusOr<std::vector<SweepRow>> RunSweeps(const SimulateOptions& options,
                                                const policy::Workload& workload, Workers* workers) {
  std::vector<Sweep> sweeps;
  std::vector<SweepRow> rows;
  for (const std::string& text : options.sweep) {
    auto sweep = ParseSweep(text);
    if (!sweep.ok()) return sweep.status();
    for (int i = 0; i < sweep->rows; ++i) {
      SweepRow& row = rows.emplace_back();
      row.sweep = sweeps.size();
      row.value = sweep->first + i * sweep->increment;
    }
    sweeps.push_back(*sweep);
  }
  const absl::Status status = workers->TryForEach("simulating", rows.size(), [&](size_t i) {
    auto row = RunRow(options, workload, *sweeps[rows[i].sweep].swept, rows[i].value);
    if (!row.ok()) return row.status();
    row->sweep = rows[i].sweep;
    rows[i] = *std::move(row);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return rows;
}

std::string SweepText(const std::vector<SweepRow>& rows) {
  const bool known =
      std::ranges::all_of(rows, [](const SweepRow& row) { return !row.Ran() || row.result.ShareIsKnown(); });
  std::string text = absl::StrFormat("%-24s %10s %13s %12s %14s %13s %9s %9s\n", "setting", "% of ideal",
                                     known ? "% of bound" : ">= % of bound", "iteration, s", "wait bytes, s",
                                     "wait mem, s", "in, GiB", "out, GiB");
  for (const SweepRow& row : rows) {
    if (!row.Ran()) {
      absl::StrAppendFormat(&text, "%-24s cannot run: %s\n", row.Setting(), row.problem);
      continue;
    }
    const policy::Execution& run = row.result.execution;
    absl::StrAppendFormat(&text, "%-24s %10.2f %13.2f %12.3f %14.3f %13.3f %9.2f %9.2f\n", row.Setting(),
                          run.PercentOfIdeal(), row.result.PercentOfBound(),
                          static_cast<double>(run.iteration) / 1e9, static_cast<double>(run.read_wait) / 1e9,
                          static_cast<double>(run.memory_wait) / 1e9,
                          (run.traffic.host_to_gpu + run.traffic.ssd_to_gpu) / kGiB,
                          (run.traffic.gpu_to_host + run.traffic.gpu_to_ssd) / kGiB);
  }
  return text;
}

std::string SweepJson(const SimulateOptions& options, const std::vector<SweepRow>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const SweepRow& row : rows) {
    nlohmann::json one = row.Ran() ? ResultJson(row.result) : nlohmann::json{{"problem", row.problem}};
    one["runs"] = row.Ran();
    one["option"] = row.option;
    one["value"] = row.value;
    one["setting"] = row.Setting();
    list.push_back(std::move(one));
  }
  return DumpJson({{"options", OptionsJson(options)}, {"sweep", std::move(list)}});
}

}  // namespace spillway::integration
