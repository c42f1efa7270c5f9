#include "integration/cli/report/job_ranks.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/cli/page/report_units.h"

namespace spillway::integration {
namespace {

constexpr double kMaxLocalRanks = 1024;  // a larger number in a file is a slip, no list of missing ranks

std::string BytesOrNothing(const Known& bytes) { return bytes ? Shown(*bytes, Unit::kBytes) : ""; }

std::string SettingOf(const ReportData& data, const std::string& name) {
  const auto found = std::ranges::find(data.settings, name, &ReportSetting::name);
  return found == data.settings.end() ? "" : found->value;
}

void AddIfDifferent(std::string what, std::vector<std::string> values, JobRanks* ranks) {
  const bool same = std::ranges::all_of(values, [&](const auto& value) { return value == values.front(); });
  if (!same) ranks->differences.push_back({std::move(what), std::move(values)});
}

void FindDifferences(const ReportedRun& run, JobRanks* ranks) {
  const auto column = [&run](auto value) {
    std::vector<std::string> values;
    for (const RankFile& rank : run.ranks) values.push_back(value(rank.data));
    return values;
  };
  std::set<std::string> settings;
  for (const RankFile& rank : run.ranks) {
    for (const ReportSetting& setting : rank.data.settings) settings.insert(setting.name);
  }
  using Data = const ReportData&;
  for (const std::string& name : settings)
    AddIfDifferent(name, column([&name](Data data) { return SettingOf(data, name); }), ranks);
  AddIfDifferent("device", column([](Data data) { return data.job.device; }), ranks);
  AddIfDifferent("memory of the device",
                 column([](Data data) { return BytesOrNothing(data.job.device_bytes); }), ranks);
  AddIfDifferent("GPU budget", column([](Data data) { return BytesOrNothing(data.capacity.gpu_bytes); }),
                 ranks);
  AddIfDifferent("host memory it may use",
                 column([](Data data) { return BytesOrNothing(data.capacity.host_bytes); }), ranks);
  AddIfDifferent("driver", column([](Data data) { return data.job.driver; }), ranks);
  AddIfDifferent("framework", column([](Data data) { return data.job.framework; }), ranks);
  AddIfDifferent("Spillway", column([](Data data) { return data.job.spillway; }), ranks);
}

// Finds missing ranks: the files have the number of ranks on their node.
void FindAbsent(const ReportedRun& run, JobRanks* ranks) {
  std::map<std::string, std::pair<double, std::set<double>>> nodes;  // number of ranks; ranks with files
  for (const RankFile& rank : run.ranks) {
    const ReportJob& job = rank.data.job;
    auto& [size, present] = nodes[job.host];
    size = std::max(size, job.local_size.value_or(0));
    if (job.rank) present.insert(*job.rank);
  }
  for (const auto& [host, node] : nodes) {
    const auto& [size, present] = node;
    for (double rank = 0; size <= kMaxLocalRanks && rank < size; ++rank) {
      if (!present.contains(rank))
        ranks->absent.push_back(
            absl::StrFormat("%srank %.0f of %.0f", host.empty() ? "" : host + ": ", rank, size));
    }
  }
}

Known Sum(const ReportedRun& run, Known ReportMetrics::*figure) {
  double sum = 0;
  for (const RankFile& rank : run.ranks) {
    const Known& value = rank.data.metrics.*figure;
    if (!value) return std::nullopt;
    sum += *value;
  }
  return sum;
}

Known WrittenByProcesses(const ReportedRun& run) {
  double sum = 0;
  std::set<std::pair<std::string, double>> counted;
  for (const RankFile& rank : run.ranks) {
    const ReportJob& job = rank.data.job;
    const Known& written = rank.data.metrics.disk_written_bytes;
    if (!written) return std::nullopt;
    if (!job.pid || counted.insert({job.host, *job.pid}).second) sum += *written;
  }
  return sum;
}

// If ranks are equally fast, all wait for the one that is held up most.
void FindSlowest(JobRanks* ranks) {
  const std::vector<ReportFacts>& facts = ranks->facts;
  const auto most = [&facts](Known ReportFacts::*figure) {
    const auto less = [figure](const ReportFacts& a, const ReportFacts& b) {
      return (a.*figure).value_or(-1) < (b.*figure).value_or(-1);
    };
    return static_cast<size_t>(std::ranges::max_element(facts, less) - facts.begin());
  };
  for (const ReportFacts& one : facts) {
    if (!one.iteration_s) continue;
    ranks->fastest_s = std::min(ranks->fastest_s.value_or(*one.iteration_s), *one.iteration_s);
    ranks->slowest_s = std::max(ranks->slowest_s.value_or(0), *one.iteration_s);
  }
  if (ranks->slowest_s && *ranks->slowest_s > *ranks->fastest_s * (1 + kEqualPercent / 100)) {
    ranks->slowest = most(&ReportFacts::iteration_s);
    ranks->by = SlowestBy::kIteration;
  } else if (const size_t loser = most(&ReportFacts::lost_percent); facts[loser].lost_percent) {
    ranks->slowest = loser;
    ranks->by = SlowestBy::kLostTime;
  }
}

}  // namespace

std::vector<std::string> RankNames(const ReportedRun& run) {
  std::set<std::string> hosts;
  std::set<std::pair<std::string, double>> ranks;
  for (const RankFile& rank : run.ranks) {
    hosts.insert(rank.data.job.host);
    ranks.insert({rank.data.job.host, rank.data.job.rank.value_or(-1)});
  }
  std::vector<std::string> names;
  for (const RankFile& rank : run.ranks) {
    const ReportJob& job = rank.data.job;
    std::string name = hosts.size() > 1 && !job.host.empty() ? absl::StrCat(job.host, ", ") : "";
    if (job.rank)
      absl::StrAppendFormat(&name, "rank %.0f", *job.rank);
    else if (job.pid)
      absl::StrAppendFormat(&name, "process %.0f", *job.pid);
    else
      absl::StrAppend(&name, std::filesystem::path(rank.path).filename().string());
    if (ranks.size() < run.ranks.size() && job.device_index)
      absl::StrAppendFormat(&name, ", GPU %.0f", *job.device_index);
    names.push_back(std::move(name));
  }
  if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
  for (size_t r = 0; r < names.size(); ++r) {
    const ReportJob& job = run.ranks[r].data.job;
    if (job.rank && job.pid) absl::StrAppendFormat(&names[r], ", process %.0f", *job.pid);
  }
  return names;
}

JobRanks RanksOf(const ReportedRun& run, const ReportAssumptions& assumptions) {
  JobRanks ranks;
  ranks.names = RankNames(run);
  WhatIf not_simulated;
  not_simulated.missing = "only the slowest rank is simulated";
  for (const RankFile& rank : run.ranks)
    ranks.facts.push_back(FactsOf(rank.data, not_simulated, assumptions));
  FindSlowest(&ranks);
  ranks.spilled_bytes = Sum(run, &ReportMetrics::spilled_bytes);
  ranks.fetched_bytes = Sum(run, &ReportMetrics::fetched_bytes);
  ranks.disk_written_bytes = WrittenByProcesses(run);
  FindDifferences(run, &ranks);
  FindAbsent(run, &ranks);
  return ranks;
}

}  // namespace spillway::integration
