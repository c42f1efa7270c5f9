#include "integration/cli/report/run_changes.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace spillway::integration {
namespace {

constexpr double kNotablePercent = 2;
constexpr size_t kFewIterations = 4;  // fewer have no useful quartiles

// Returns a figure of both runs, by a function of one.
template <typename Value>
Change ChangeOf(const char* key, std::string label, Unit unit, const ComparedRun& before,
                const ComparedRun& after, Value value) {
  return {key, std::move(label), unit, value(before), value(after), ""};
}

Known PartOfIteration(const Known& of_run, const ComparedRun& run) {
  const ReportFacts& facts = *run.facts;
  if (!of_run || !facts.seconds || *facts.seconds <= 0 || !facts.iteration_s) return std::nullopt;
  return *of_run * *facts.iteration_s / *facts.seconds;
}

// Returns a figure of one iteration, by the process's own count if it has one, or of the whole run.
Known Bytes(const ComparedRun& run, bool per_iteration, Known ReportMetrics::*of_run,
            Known ReportPerIteration::*of_one) {
  const ReportMetrics& metrics = run.data->metrics;
  if (!per_iteration) return metrics.*of_run;
  return metrics.per_iteration.*of_one ? metrics.per_iteration.*of_one
                                       : PartOfIteration(metrics.*of_run, run);
}

ChangeGroup Speed(const ComparedRun& before, const ComparedRun& after) {
  ChangeGroup group{"speed", "Speed", {}};
  const auto add = [&](const char* key, const char* label, Unit unit, Known ReportFacts::*figure) {
    group.changes.push_back(ChangeOf(key, label, unit, before, after,
                                     [figure](const ComparedRun& run) { return run.facts->*figure; }));
  };
  add("iteration_seconds", "one iteration", Unit::kSeconds, &ReportFacts::iteration_s);
  add("ideal_seconds", "kernels alone", Unit::kSeconds, &ReportFacts::ideal_s);
  add("bound_seconds", "bound", Unit::kSeconds, &ReportFacts::bound_s);
  add("percent_of_bound", "share of the bound", Unit::kPercent, &ReportFacts::percent_of_bound);
  add("lost_percent", "time lost, of the run", Unit::kPercent, &ReportFacts::lost_percent);
  return group;
}

Known LostTo(const std::string& cause, const std::vector<std::pair<std::string, double>>& lost) {
  const auto found = std::ranges::find(lost, cause, &std::pair<std::string, double>::first);
  if (found != lost.end()) return found->second;
  return lost.empty() ? std::nullopt : Known(0);
}

ChangeGroup LostTime(const RunChanges& changes, const ComparedRun& before, const ComparedRun& after) {
  ChangeGroup group{"lost", changes.per_iteration ? "Time lost in an iteration" : "Time lost in the run", {}};
  const auto& lost_before = changes.per_iteration ? changes.before.lost_s : before.facts->lost_by_cause;
  const auto& lost_after = changes.per_iteration ? changes.after.lost_s : after.facts->lost_by_cause;
  std::vector<std::string> causes;  // of either run, in their order
  for (const auto* lost : {&lost_before, &lost_after}) {
    for (const auto& [cause, seconds] : *lost) {
      if (std::ranges::find(causes, cause) == causes.end()) causes.push_back(cause);
    }
  }
  for (const std::string& cause : causes)
    group.changes.push_back({absl::StrCat("lost ", cause), absl::StrCat("waited ", cause), Unit::kSeconds,
                             LostTo(cause, lost_before), LostTo(cause, lost_after), ""});
  if (changes.per_iteration)
    group.changes.push_back({"own_pauses_seconds", "the job's own pauses", Unit::kSeconds,
                             changes.before.pauses_s, changes.after.pauses_s, ""});
  return group;
}

ChangeGroup Moved(const RunChanges& changes, const ComparedRun& before, const ComparedRun& after) {
  ChangeGroup group{"moved", changes.per_iteration ? "Moved in an iteration" : "Moved in the run", {}};
  const auto add = [&](const char* key, const char* label, Known ReportMetrics::*of_run,
                       Known ReportPerIteration::*of_one) {
    group.changes.push_back(ChangeOf(key, label, Unit::kBytes, before, after, [&](const ComparedRun& run) {
      return Bytes(run, changes.per_iteration, of_run, of_one);
    }));
  };
  add("gpu_to_host_bytes", "GPU → host", &ReportMetrics::host_spilled_bytes,
      &ReportPerIteration::host_spilled_bytes);
  add("host_to_gpu_bytes", "host → GPU", &ReportMetrics::host_fetched_bytes,
      &ReportPerIteration::host_fetched_bytes);
  add("gpu_to_disk_bytes", "GPU → disk", &ReportMetrics::disk_spilled_bytes,
      &ReportPerIteration::disk_spilled_bytes);
  add("disk_to_gpu_bytes", "disk → GPU", &ReportMetrics::disk_fetched_bytes,
      &ReportPerIteration::disk_fetched_bytes);
  group.changes.push_back(ChangeOf("in_time_percent", "came back in time", Unit::kPercent, before, after,
                                   [](const ComparedRun& run) -> Known {
                                     const ReportMetrics& metrics = run.data->metrics;
                                     if (metrics.fetched_bytes.value_or(0) <= 0 || !metrics.in_time_bytes)
                                       return std::nullopt;
                                     return 100 * *metrics.in_time_bytes / *metrics.fetched_bytes;
                                   }));
  return group;
}

ChangeGroup Memory(const ComparedRun& before, const ComparedRun& after) {
  ChangeGroup group{"memory", "Memory", {}};
  const auto add = [&](const char* key, const char* label, auto value) {
    group.changes.push_back(ChangeOf(key, label, Unit::kBytes, before, after, value));
  };
  add("peak_live_bytes", "held at the peak",
      [](const ComparedRun& run) { return run.facts->peak_live_bytes; });
  add("budget_bytes", "GPU budget", [](const ComparedRun& run) { return run.facts->budget_bytes; });
  add("peak_bytes", "device memory at the peak",
      [](const ComparedRun& run) { return run.data->metrics.peak_bytes; });
  add("host_capacity_bytes", "host memory it may use",
      [](const ComparedRun& run) { return run.data->capacity.host_bytes; });
  add("disk_capacity_bytes", "disk that its files hold", [](const ComparedRun& run) -> Known {
    if (!run.data->capacity.disks) return std::nullopt;
    double bytes = 0;
    for (const ReportDisk& disk : *run.data->capacity.disks) bytes += disk.bytes.value_or(0);
    return bytes;
  });
  return group;
}

ChangeGroup Rates(const ComparedRun& before, const ComparedRun& after) {
  ChangeGroup group{"rates", "Measured rates", {}};
  const auto add = [&](const char* key, const char* label, auto value) {
    group.changes.push_back(ChangeOf(key, label, Unit::kBytesPerSecond, before, after, value));
  };
  add("link_in", "link to the GPU, plain copies", [](const ComparedRun& run) -> Known {
    return run.data->metrics.link ? Known(run.data->metrics.link->in) : std::nullopt;
  });
  add("link_out", "link from the GPU, plain copies", [](const ComparedRun& run) -> Known {
    return run.data->metrics.link ? Known(run.data->metrics.link->out) : std::nullopt;
  });
  add("host_in", "host → GPU, of the job", [](const ComparedRun& run) { return run.data->metrics.host_in; });
  add("host_out", "GPU → host, of the job",
      [](const ComparedRun& run) { return run.data->metrics.host_out; });
  add("disk_in", "disk → GPU, of the job", [](const ComparedRun& run) { return run.data->metrics.disk_in; });
  add("disk_out", "GPU → disk, of the job",
      [](const ComparedRun& run) { return run.data->metrics.disk_out; });
  return group;
}

void AddIfDifferent(std::string what, std::string before, std::string after, std::vector<TextChange>* list) {
  if (before != after) list->push_back({std::move(what), std::move(before), std::move(after)});
}

void FindSettings(const ReportData& before, const ReportData& after, RunChanges* changes) {
  std::set<std::string> names;
  for (const ReportData* data : {&before, &after}) {
    for (const ReportSetting& setting : data->settings) names.insert(setting.name);
  }
  const auto value_of = [](const ReportData& data, const std::string& name) {
    const auto found = std::ranges::find(data.settings, name, &ReportSetting::name);
    return found == data.settings.end() ? std::string() : found->value;
  };
  for (const std::string& name : names)
    AddIfDifferent(name, value_of(before, name), value_of(after, name), &changes->settings);
}

// Returns "/nvme0/spill (io_uring, direct)".
std::string DirectoriesText(const ReportData& data) {
  std::vector<std::string> texts;
  for (const ReportDirectory& one : data.metrics.directories) {
    const char* const cache = !one.direct ? "" : *one.direct ? ", direct" : ", buffered";
    texts.push_back(absl::StrCat(one.path, " (", one.engine, cache, ")"));
  }
  if (texts.empty() && data.capacity.disks) {
    for (const ReportDisk& disk : *data.capacity.disks) texts.push_back(disk.directory);
  }
  return absl::StrJoin(texts, ", ");
}

std::string TroubleText(const ReportData& data) {
  double errors = 0, closures = 0;
  for (const ReportDirectory& one : data.metrics.directories) {
    errors += one.errors.value_or(0) + one.mismatches.value_or(0);
    closures += one.closures.value_or(0);
  }
  if (errors + closures <= 0) return "";
  return absl::StrCat(Shown(errors, Unit::kCount), " failed transfers or wrong checksums, closed ",
                      Shown(closures, Unit::kCount), " times");
}

void FindMachine(const ReportData& before, const ReportData& after, RunChanges* changes) {
  const auto add = [&](const char* what, auto value) {
    AddIfDifferent(what, value(before), value(after), &changes->machine);
  };
  using Data = const ReportData&;
  add("host", [](Data data) { return data.job.host; });
  add("device", [](Data data) { return data.job.device; });
  add("memory of the device", [](Data data) {
    return data.job.device_bytes ? Shown(*data.job.device_bytes, Unit::kBytes) : std::string();
  });
  add("driver", [](Data data) { return data.job.driver; });
  add("framework", [](Data data) { return data.job.framework; });
  add("Spillway", [](Data data) { return data.job.spillway; });
  add("spill directories", DirectoriesText);
  add("trouble of drives", TroubleText);
}

void FindJob(const ReportData& before, const ReportData& after, RunChanges* changes) {
  const auto add = [&](const char* what, auto value) {
    AddIfDifferent(what, value(before), value(after), &changes->job);
  };
  using Data = const ReportData&;
  add("command", [](Data data) { return absl::StrJoin(data.job.command, " "); });
  add("ranks on the node", [](Data data) {
    return data.job.local_size ? Shown(*data.job.local_size, Unit::kCount) : std::string();
  });
  add("ended", [](Data data) {
    if (!data.job.ended) return std::string();
    return std::string(*data.job.ended ? "yes" : "no: written while it ran, or it was killed");
  });
}

// Returns whether each median lies among the middle half of the other's iterations. The first iteration,
// which makes plans, is left out.
bool AreWithinSpread(const ReportData& before, const ReportData& after) {
  Column sorted[2];
  const ReportData* const runs[] = {&before, &after};
  for (int i = 0; i < 2; ++i) {
    if (!runs[i]->iterations || runs[i]->iterations->seconds.size() < kFewIterations + 1) return false;
    sorted[i].assign(runs[i]->iterations->seconds.begin() + 1, runs[i]->iterations->seconds.end());
    std::ranges::sort(sorted[i]);
  }
  const auto has_median_of = [](const Column& a, const Column& b) {
    const double median = b[b.size() / 2];
    return a[a.size() / 4] <= median && median <= a[a.size() * 3 / 4];
  };
  return has_median_of(sorted[0], sorted[1]) && has_median_of(sorted[1], sorted[0]);
}

// Compares with a tolerance: figures that are computed in the same way for both may differ in their last
// digits.
bool AreEqual(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b)); }

}  // namespace

Known Change::Absolute() const {
  if (!before || !after) return std::nullopt;
  return AreEqual(*before, *after) ? 0 : *after - *before;
}

Known Change::Percent() const {
  if (!before || !after || *before == 0) return std::nullopt;
  return AreEqual(*before, *after) ? 0 : 100 * (*after / *before - 1);
}

bool Change::IsNotable() const {
  if (!before || !after || AreEqual(*before, *after)) return false;
  // Shares are compared in points: 2 of 100.
  if (unit == Unit::kPercent) return std::abs(*after - *before) >= kNotablePercent;
  const Known percent = Percent();
  return !percent || std::abs(*percent) >= kNotablePercent;
}

const Change* RunChanges::Find(const std::string& key) const {
  for (const ChangeGroup& group : groups) {
    for (const Change& change : group.changes) {
      if (change.key == key) return &change;
    }
  }
  return nullptr;
}

RunChanges ChangesOf(const ComparedRun& before, const ComparedRun& after) {
  RunChanges changes;
  changes.per_iteration = before.facts->iteration_s && after.facts->iteration_s;
  changes.within_spread = changes.per_iteration && AreWithinSpread(*before.data, *after.data);
  changes.before = PartsOf(*before.data, *before.facts);
  changes.after = PartsOf(*after.data, *after.facts);
  changes.groups = {Speed(before, after), LostTime(changes, before, after), Moved(changes, before, after),
                    Memory(before, after), Rates(before, after)};
  FindSettings(*before.data, *after.data, &changes);
  FindMachine(*before.data, *after.data, &changes);
  FindJob(*before.data, *after.data, &changes);
  return changes;
}

}  // namespace spillway::integration
