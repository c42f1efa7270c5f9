#include "integration/cli/simulate/simulate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/common/quantities.h"
#include "integration/cli/common/trace_files.h"
#include "integration/cli/common/workers.h"
#include "integration/cli/page/page_file.h"
#include "integration/cli/simulate/simulate_report.h"
#include "integration/cli/simulate/sweep.h"
#include "integration/cli/simulate/sweep_page.h"
#include "policy/offline/schedule_csv.h"

namespace spillway::integration {
namespace {

constexpr int kNoResult = 1;
constexpr uint32_t kMinIterations = 4;

int Fail(const absl::Status& status) {
  const int wrong_use = Refuse(status);
  return absl::IsResourceExhausted(status) ? kNoResult : wrong_use;
}

// Checks what the command line's library does not.
absl::Status CheckOptions(const SimulateOptions& options) {
  if (!std::isfinite(options.latency_us)) return NotAccepted("latency", "nan", "0 to 1e6 (microseconds)");
  if (!std::isfinite(options.noise)) return NotAccepted("noise", "nan", "0 to 1");
  if (!options.html.empty() && options.sweep.empty())
    return absl::InvalidArgumentError("--html shows a sweep: add --sweep");
  if (!options.schedule.empty() && !options.sweep.empty())
    return absl::InvalidArgumentError("--schedule is of one machine: remove --sweep or --schedule");
  return absl::OkStatus();
}

}  // namespace

CLI::App* AddSimulate(CLI::App* app, SimulateOptions* options) {
  CLI::App* simulate =
      app->add_subcommand("simulate", "Plan a recorded iteration for a machine, and rate the plan");
  simulate
      ->add_option(
          "--trace", options->trace,
          "Folder with kernels.csv and tensors.csv, a trace file, or a model as in `spillway generate`")
      ->required();
  simulate->add_option("--gpu-memory", options->gpu_memory, "Bytes (default 40GiB)");
  simulate->add_option("--host-memory", options->host_memory, "Bytes (default 128GiB)");
  simulate->add_option("--pcie", options->pcie, "Bytes/s in each direction (default 15.754e9)");
  simulate->add_option("--pcie-in", options->pcie_in, "Bytes/s to the GPU");
  simulate->add_option("--pcie-out", options->pcie_out, "Bytes/s from the GPU");
  simulate->add_option("--pcie-both", options->pcie_both,
                       "IN,OUT: bytes/s while both directions run (default: as alone)");
  simulate->add_flag("--plan-independent", options->plan_independent, "Plan without regard to --pcie-both");
  simulate->add_option("--ssd-read", options->ssd_read,
                       "Bytes/s (default 3.2e9); several drives: 2.4e9,0.8e9");
  simulate->add_option("--ssd-write", options->ssd_write, "Bytes/s (default 3.2e9), of as many drives");
  simulate->add_flag("--ssd-shared", options->ssd_shared, "Reads and writes of the SSD share one limit");
  simulate->add_option("--latency", options->latency_us, "Microseconds added to each transfer (default 0)")
      ->check(CLI::Range(0.0, 1e6));
  simulate->add_option("--piece", options->piece,
                       "Tensors move in pieces of this size; 0: whole (default 2MiB)");
  simulate->add_option("--policy", options->policy, "plan (default), lru, belady, g10, lp or none")
      ->check(CLI::IsMember({"plan", "lru", "belady", "g10", "lp", "none"}));
  simulate
      ->add_option("--bound", options->bound,
                   "quick (default), coarse: tighter, in seconds, lp: tighter still, in seconds to minutes; "
                   "coarse-one-tier, lp-one-tier: of plans that change no spilled bytes' tier")
      ->check(CLI::IsMember({"quick", "coarse", "coarse-one-tier", "lp", "lp-one-tier"}));
  simulate
      ->add_option("--iterations", options->iterations,
                   "Iterations to simulate; the last two count (default 6)")
      ->check(CLI::Range(kMinIterations, 1000u));
  simulate->add_option("--noise", options->noise, "Kernels last up to this part more or less (default 0)")
      ->check(CLI::Range(0.0, 1.0));
  simulate->add_option("--seed", options->seed, "Seed of the noise (default 1)");
  simulate->add_option("--schedule", options->schedule, "Write all kernels and moves to this file");
  simulate->add_option("--convert", options->convert,
                       "Write the trace as a compact file, or as CSV into a folder (a name that ends in /)");
  simulate->add_option("--sweep", options->sweep, absl::StrCat("A table of what-ifs: ", SweepForm()));
  AddThreads(simulate, &options->threads);
  simulate->add_option("--html", options->html, "Write the sweep as a page with charts to this file");
  simulate->add_flag("--json", options->json, "Print JSON");
  return simulate;
}

namespace {

int PrintSweep(const SimulateOptions& options, const policy::Workload& workload) {
  Workers workers(options.threads, stderr);
  auto rows = RunSweeps(options, workload, &workers);
  if (!rows.ok()) return Fail(rows.status());
  if (!options.html.empty()) {
    const absl::Status written = WritePage(SweepModel(options, *rows), SweepJson(options, *rows),
                                           options.library_directory, options.html);
    if (!written.ok()) return Fail(written);
  }
  std::fputs((options.json ? SweepJson(options, *rows) : SweepText(*rows)).c_str(), stdout);
  const bool any = std::any_of(rows->begin(), rows->end(), [](const SweepRow& row) { return row.Ran(); });
  return any ? 0 : kNoResult;
}

}  // namespace

int Simulate(const SimulateOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return Fail(status);
  if (!options.html.empty()) {  // before anything is simulated
    const absl::Status found = FindDrawingLibrary(options.library_directory);
    if (!found.ok()) return Fail(found);
  }
  auto workload = ReadTrace(options.trace);
  if (!workload.ok()) return Fail(workload.status());
  if (!options.convert.empty()) {
    if (absl::Status status = WriteTrace(options.convert, *workload); !status.ok()) return Fail(status);
  }
  if (!options.sweep.empty()) return PrintSweep(options, *workload);
  auto result = RunOne(options, *workload);
  if (!result.ok()) return Fail(result.status());
  if (!options.schedule.empty()) {
    const absl::Status written = WriteFile(options.schedule, policy::ScheduleCsv(result->execution));
    if (!written.ok()) return Fail(written);
  }
  std::fputs((options.json ? ReportJson(options, *result) : ReportText(*result)).c_str(), stdout);
  return 0;
}

}  // namespace spillway::integration
