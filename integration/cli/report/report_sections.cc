#include "integration/cli/report/report_sections.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "integration/cli/report/comparison_charts.h"
#include "integration/cli/report/report_charts.h"
#include "integration/cli/report/report_tables.h"
#include "integration/cli/report/report_verdict.h"
#include "integration/engine/sizing.h"

namespace spillway::integration {
namespace {

constexpr char kTeraioWords[] =
    "TERAIO (arXiv 2506.06472) reports 1.7 % for the models that it examines: the less of the memory a "
    "running "
    "kernel uses, the more of it may be elsewhere meanwhile.";

Figure FigureOf(const char* key, const char* label, Known value, Unit unit, std::string note = "") {
  if (!value && note.empty()) note = "not in the file";
  return {key, label, value, unit, std::move(note)};
}

void Add(std::optional<Chart> chart, const std::string& why_not, Section* section) {
  if (chart)
    section->charts.push_back(*std::move(chart));
  else
    section->missing.push_back(why_not);
}

// Returns the note beside a share of the bound.
std::string ShareNote(const ReportFacts& facts, const Known& percent, const char* note) {
  if (!percent) return facts.bound_missing;
  return absl::StrCat(facts.AtLeast(*percent).empty() ? "" : "at least; ", note);
}

// Returns the budget as a sum; empty if the file has no parts of it.
std::string BudgetNote(const ReportData& data) {
  const ReportCapacity& gpu = data.capacity;
  if (!gpu.gpu_bytes || !gpu.gpu_blocks_bytes || !data.job.device_bytes) return "";
  const auto bytes = [](const Known& value) { return static_cast<uint64_t>(value.value_or(0)); };
  MemoryParts parts;
  parts.device_bytes = bytes(data.job.device_bytes);
  parts.blocks_bytes = bytes(gpu.gpu_blocks_bytes);
  parts.process_bytes = bytes(gpu.gpu_bytes) - std::min(parts.blocks_bytes, bytes(gpu.gpu_bytes));
  parts.reserve_bytes = bytes(gpu.gpu_reserve_bytes);
  parts.taken_bytes = bytes(gpu.gpu_taken_bytes);
  return Text(parts);
}

Section Overview(const ReportData& data, const ReportFacts& facts) {
  Section section{"overview", "", {}, {}, {}, {}, {}};
  section.metrics = {
      FigureOf("seconds", "duration", facts.seconds, Unit::kSeconds),
      FigureOf("budget_bytes", "GPU budget", facts.budget_bytes, Unit::kBytes, BudgetNote(data)),
      FigureOf("peak_live_bytes", "held at the peak", facts.peak_live_bytes, Unit::kBytes),
      FigureOf("lost_percent", "time lost", facts.lost_percent, Unit::kPercent),
      FigureOf("iteration_seconds", "one iteration", facts.iteration_s, Unit::kSeconds, facts.iteration_how),
      FigureOf("percent_with_pauses", "share of the possible", facts.percent_with_pauses, Unit::kPercent,
               ShareNote(facts, facts.percent_with_pauses, "100 %: no plan is faster"))};
  return section;
}

Section Memory(const ReportData& data, const ReportFacts& facts) {
  Section section{"memory", "Memory over time", {}, {}, {}, {}, {}};
  Add(MemoryChart(data, facts), "No memory over time: the file has no samples of it.", &section);
  Add(IterationsChart(data, facts),
      "No times of iterations: fewer than two were found, by marks of an optimizer or by repetition.",
      &section);
  section.metrics = {
      FigureOf("peak_bytes", "device memory at the peak", data.metrics.peak_bytes, Unit::kBytes),
      FigureOf("host_capacity_bytes", "host memory it may use", data.capacity.host_bytes, Unit::kBytes),
      FigureOf("saved_bytes", "GPU memory saved", facts.saved_bytes, Unit::kBytes,
               facts.saved_bytes ? "what is held at the peak, less the budget"
                                 : "peak or budget is not in the file")};
  return section;
}

Section Pauses(const ReportData& data) {
  Section section{"pauses", "Pauses", {}, {}, {}, {}, {}};
  std::map<std::string, double> seconds;
  for (const ReportPause& pause : data.pauses)
    seconds[pause.by] += pause.SecondsUntil(data.job.seconds.value_or(0));
  section.metrics = {
      FigureOf("pauses", "pauses", static_cast<double>(data.pauses.size()), Unit::kCount,
               "the file has the last 1,000"),
      FigureOf("paused_by_job_seconds", "by the job itself", seconds["job"], Unit::kSeconds,
               "pauses of regions at the same time are summed up"),
      FigureOf("paused_from_outside_seconds", "from outside", seconds["outside"], Unit::kSeconds)};
  if (seconds.contains("idle"))
    section.metrics.push_back(
        FigureOf("paused_while_idle_seconds", "idle, for other jobs", seconds["idle"], Unit::kSeconds));
  section.tables.push_back(PausesTable(data));
  return section;
}

// Returns an empty text if the job never measured the link.
std::string MeasuredLinkText(const ReportMetrics& metrics) {
  if (!metrics.link) return "";
  const auto shown = [](double rate) { return Shown(rate, Unit::kBytesPerSecond); };
  return absl::StrCat("The link as plain copies measured it: ", shown(metrics.link->in), " to the GPU and ",
                      shown(metrics.link->out), " from it alone, ", shown(metrics.link->in_both), " and ",
                      shown(metrics.link->out_both), " while both directions run.");
}

Section Transfers(const ReportData& data) {
  Section section{"transfers", "Transfers", {}, {}, {}, {}, {}};
  Add(LinkChart(data), "No transfers over time: nothing was moved, or the file has no samples of it.",
      &section);
  for (Chart& chart : DriveCharts(data)) section.charts.push_back(std::move(chart));
  if (data.capacity.disks && data.capacity.disks->empty())
    section.missing.push_back("No drives: the run had no disk.");
  else if (data.metrics.disk_written_bytes.value_or(0) == 0 && data.metrics.disk_read_bytes.value_or(0) == 0)
    section.missing.push_back("No drives: nothing was written to a disk.");
  Add(MoveSizesChart(data), "No sizes of moves: the file has no moves.", &section);
  const ReportMetrics& metrics = data.metrics;
  section.metrics = {
      FigureOf("spilled_bytes", "left the GPU", metrics.spilled_bytes, Unit::kBytes),
      FigureOf("host_spilled_bytes", "of it to host memory", metrics.host_spilled_bytes, Unit::kBytes),
      FigureOf("disk_spilled_bytes", "of it to the disk", metrics.disk_spilled_bytes, Unit::kBytes),
      FigureOf("fetched_bytes", "came back", metrics.fetched_bytes, Unit::kBytes)};
  if (const std::string words = MeasuredLinkText(metrics); !words.empty()) section.words.push_back(words);
  const bool some = metrics.fetched_bytes.value_or(0) > 0 && metrics.in_time_bytes;
  section.metrics.push_back(
      FigureOf("in_time_percent", "of it in time",
               some ? Known(100 * *metrics.in_time_bytes / *metrics.fetched_bytes) : std::nullopt,
               Unit::kPercent, some ? "nothing on the GPU waited for it" : "nothing came back"));
  if (data.dropped_moves.value_or(0) > 0)
    section.missing.push_back(absl::StrCat(
        "The first ", Shown(*data.dropped_moves, Unit::kCount),
        " moves are not in the file, which keeps the last ones; charts of moves leave them out."));
  return section;
}

Section OneIteration(const ReportData& data, const ReportFacts& facts) {
  Section section{"iteration", "One iteration in detail", {}, {}, {}, {}, {}};
  Add(OneIterationChart(data, facts),
      "Not shown: it needs a whole iteration whose moves are all in the file.", &section);
  if (auto chart = IterationMemoryChart(data, facts)) section.charts.push_back(*std::move(chart));
  if (data.phases.empty())
    section.missing.push_back("No phases: forward and backward pass could not be told apart.");
  return section;
}

Section Stalls(const ReportData& data, const ReportFacts& facts) {
  Section section{"stalls", "Time lost, and why", {}, {}, {}, {}, {}};
  section.metrics = {
      FigureOf("lost_seconds", "the GPU had nothing to do", facts.lost_seconds, Unit::kSeconds),
      FigureOf("stall_seconds", "threads of the job waited", data.metrics.stall_seconds, Unit::kSeconds,
               data.metrics.stall_seconds ? "a sum over threads; the GPU may have had work meanwhile" : "")};
  Add(LostTimeChart(data, facts), "No time lost over the run's time: the file has no waits.", &section);
  if (!facts.lost_by_cause.empty()) section.tables.push_back(CauseTable(facts));
  if (Table kernels = WaitingKernelsTable(data); !kernels.rows.empty())
    section.tables.push_back(std::move(kernels));
  if (data.dropped_stalls.value_or(0) > 0)
    section.missing.push_back(absl::StrCat("The first ", Shown(*data.dropped_stalls, Unit::kCount),
                                           " waits are not in the file, which keeps the last ones."));
  return section;
}

Section Costs(const ReportData& data) {
  Section section{"costs", "Blocks and kernels that cost most", {}, {}, {}, {}, {}};
  if (data.largest_blocks.empty())
    section.missing.push_back("No blocks: the file names none.");
  else
    section.tables.push_back(BlocksTable(data));
  if (data.costliest_kernels.empty())
    section.missing.push_back("No kernels: the file names none.");
  else
    section.tables.push_back(KernelsTable(data));
  if (!data.reaching_kernels.empty()) {
    section.tables.push_back(ReachingKernelsTable(data));
    section.words.push_back(
        "Launches whose blocks did not fit the GPU together reached the rest in host memory. A budget that "
        "is larger "
        "by what one lacked ends that.");
  }
  return section;
}

Section Bound(const ReportData& data, const ReportFacts& facts, const WhatIf& what_if) {
  Section section{"bound", "How near to what is possible", {}, {}, {}, {}, {}};
  const std::string why = facts.bound_missing;
  section.metrics = {
      FigureOf("ideal_seconds", "kernels alone", facts.ideal_s, Unit::kSeconds,
               facts.ideal_s ? "as on a GPU with unlimited memory" : what_if.missing),
      FigureOf("own_pauses_seconds", "without work for the GPU", facts.own_pauses_s, Unit::kSeconds,
               facts.own_pauses_s ? "the job's own: host, data, other work" : "the time lost is not known"),
      FigureOf("bound_seconds", "bound", facts.bound_s, Unit::kSeconds,
               facts.bound_s ? "no plan of Spillway is faster here: spilled bytes stay in their tier" : why),
      FigureOf("percent_of_bound", "share of the bound", facts.percent_of_bound, Unit::kPercent,
               ShareNote(facts, facts.percent_of_bound, "without the job's own pauses")),
      FigureOf("percent_of_ideal", "share of the kernels alone", facts.percent_of_ideal, Unit::kPercent,
               facts.percent_of_ideal ? "" : why)};
  if (!facts.percent_of_bound && !why.empty())
    section.missing.push_back(absl::StrCat("No share of the bound: ", why, "."));
  Add(BoundChart(facts, what_if, data), "No comparison: fewer than two of the times are known.", &section);
  return section;
}

Section Machines(const ReportFacts& facts, const WhatIf& what_if) {
  Section section{"what_if", "What other machines would give", {}, {}, {}, {}, {}};
  if (!what_if.missing.empty()) {
    section.missing.push_back(absl::StrCat("Not simulated: ", what_if.missing, "."));
    return section;
  }
  section.words.push_back(absl::StrCat(
      "Simulated, not measured: the recorded iteration (", Shown(what_if.kernels, Unit::kCount), " kernels, ",
      Shown(what_if.tensors, Unit::kCount),
      " blocks) with one thing changed at a time. The machine of this run: GPU ",
      Shown(what_if.gpu_bytes, Unit::kBytes), ", host memory ", Shown(what_if.host_bytes, Unit::kBytes),
      ", link ", Shown(what_if.link_in, Unit::kBytesPerSecond), " in and ",
      Shown(what_if.link_out, Unit::kBytesPerSecond), " out",
      what_if.link_in_both ? absl::StrCat(" (", Shown(*what_if.link_in_both, Unit::kBytesPerSecond), " and ",
                                          Shown(*what_if.link_out_both, Unit::kBytesPerSecond), " at once)")
                           : "",
      ", disk ", Shown(what_if.disk_in, Unit::kBytesPerSecond), " read and ",
      Shown(what_if.disk_out, Unit::kBytesPerSecond), " written."));
  if (!what_if.assumed.empty())
    section.words.push_back(absl::StrCat(
        "Assumed, since the run did not measure it: ", absl::StrJoin(what_if.assumed, ", "), "."));
  section.metrics = {FigureOf("simulated_seconds", "an iteration on this machine, simulated",
                              what_if.iteration_s, Unit::kSeconds)};
  for (const WhatIfSweep& sweep : what_if.sweeps) {
    if (sweep.points.empty()) {
      section.missing.push_back(absl::StrCat("No other ", NameOf(sweep.axis), ": ", sweep.missing, "."));
      continue;
    }
    if (auto chart = WhatIfChart(what_if, sweep, facts)) section.charts.push_back(*std::move(chart));
    section.tables.push_back(WhatIfTable(what_if, sweep));
  }
  return section;
}

// Adds what each directory was written, and the trouble of its drive; nothing if the file names none.
void AddDirectories(const ReportData& data, Section* section) {
  if (data.metrics.directories.empty()) return;
  section->tables.push_back(DirectoriesTable(data));
  if (Table trouble = TroubleTable(data); !trouble.rows.empty()) {
    section->tables.push_back(std::move(trouble));
    return;
  }
  const bool known = std::ranges::all_of(data.metrics.directories, [](const ReportDirectory& directory) {
    return directory.errors && directory.mismatches && directory.closures;
  });
  if (known)
    section->words.push_back("No transfer failed, no checksum was wrong and no directory was closed.");
  else
    section->missing.push_back("Whether transfers failed is not in the file.");
}

Section Wear(const ReportData& data, const ReportFacts& facts, const ReportAssumptions& assumptions) {
  Section section{"wear", "The drives and their wear", {}, {}, {}, {}, {}};
  if (facts.drives == 0) {
    section.missing.push_back("The run had no disk.");
    return section;
  }
  const bool written = data.metrics.disk_written_bytes.value_or(0) > 0;
  const bool several = facts.wear_ranks > 1;
  section.metrics = {
      FigureOf("disk_written_bytes", several ? "written by this rank" : "written",
               data.metrics.disk_written_bytes, Unit::kBytes),
      FigureOf("disk_read_bytes", several ? "read by this rank" : "read", data.metrics.disk_read_bytes,
               Unit::kBytes),
      FigureOf("written_per_day_bytes",
               several ? "written by all ranks in a day at this rate" : "written in a day at this rate",
               facts.written_per_day, Unit::kBytes),
      FigureOf("ssd_days", "days until the rated writes are spent", facts.ssd_days, Unit::kDays,
               !facts.ssd_days    ? (written ? "the duration is not in the file" : "nothing was written")
               : facts.drives > 1 ? "of the drive that is written most"
                                  : "")};
  section.words.push_back(absl::StrCat(
      "Rated writes: ", Shown(assumptions.ssd_tbw, Unit::kCount), " TB (10^12 bytes) for each of ",
      Shown(facts.drives, Unit::kCount), facts.drives == 1 ? " drive" : " drives",
      assumptions.ssd_tbw_given
          ? ", as given by --ssd-tbw."
          : ", assumed: what a consumer drive of 1 TB is often rated at; --ssd-tbw gives another."));
  if (several)
    section.words.push_back(absl::StrCat(Shown(facts.wear_ranks, Unit::kCount),
                                         " ranks of the job write to it: each is taken to write as much as "
                                         "this one, whose file this is."));
  section.words.push_back(
      "Other jobs, and what a drive writes for itself, are not in it; a RAID counts as one drive.");
  AddDirectories(data, &section);
  return section;
}

Section Energy(const ReportFacts& facts) {
  Section section{"energy", "Energy", {}, {}, {}, {}, {}};
  if (!facts.joules) {
    section.missing.push_back("Not known: no power was read (NVML, RAPL), and none was given (--watts).");
    return section;
  }
  section.words.push_back(absl::StrCat("Power: ", facts.power_source,
                                       ". The energy of lost time is taken as its share of the whole: a GPU "
                                       "that waits draws less, so it is an upper figure."));
  const std::string no_saving = "nothing was saved, or it is not known";
  section.metrics = {
      FigureOf("joules", "energy of the run", facts.joules, Unit::kJoules),
      FigureOf("lost_joules", "of it in lost time", facts.lost_joules, Unit::kJoules),
      FigureOf("lost_joules_per_gb", "energy for each GB of GPU memory saved", facts.lost_joules_per_gb,
               Unit::kJoules, facts.lost_joules_per_gb ? "" : no_saving)};
  if (!facts.money) {
    section.missing.push_back("No cost: no price was given (--price-per-kwh).");
    return section;
  }
  section.metrics.push_back(
      FigureOf("money", "cost of the run, in the price's currency", facts.money, Unit::kMoney));
  section.metrics.push_back(FigureOf("lost_money_per_gb", "cost for each GB of GPU memory saved",
                                     facts.lost_money_per_gb, Unit::kMoney,
                                     facts.lost_money_per_gb ? "" : no_saving));
  return section;
}

Section Active(const ReportData& data) {
  Section section{"active", "How much of the memory is in use", {}, {}, {}, {}, {}};
  if (!data.active_share) {
    section.missing.push_back("Not known: no iteration was recorded.");
    return section;
  }
  section.metrics = {FigureOf("active_percent", "used by the running kernel", 100 * *data.active_share,
                              Unit::kPercent, "of the live bytes, weighted by time"),
                     FigureOf("teraio_active_percent", "in TERAIO's measurements", 1.7, Unit::kPercent)};
  section.words.push_back(kTeraioWords);
  return section;
}

}  // namespace

ReportModel ModelOf(const ReportData& data, const WhatIf& what_if, const ReportAssumptions& assumptions) {
  const ReportFacts facts = FactsOf(data, what_if, assumptions);
  ReportModel model;
  model.title = data.job.command.empty() ? "a run" : absl::StrJoin(data.job.command, " ");
  model.verdict = VerdictOf(data, facts);
  model.sections = {Overview(data, facts),
                    Memory(data, facts),
                    Transfers(data),
                    OneIteration(data, facts),
                    Stalls(data, facts),
                    Costs(data),
                    Bound(data, facts, what_if),
                    Machines(facts, what_if),
                    Wear(data, facts, assumptions),
                    Energy(facts),
                    Active(data)};
  if (!data.pauses.empty()) model.sections.insert(model.sections.begin() + 2, Pauses(data));
  Section run{"run", "The run", {}, {}, {}, {}, {JobTable(data)}};
  if (data.settings.empty())
    run.missing.push_back("No settings were given: all had their defaults.");
  else
    run.tables.push_back(SettingsTable(data));
  model.sections.push_back(std::move(run));
  return model;
}

}  // namespace spillway::integration
