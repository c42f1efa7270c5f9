#include "integration/cli/report/ranks_page.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "integration/cli/report/iteration_parts.h"

namespace spillway::integration {
namespace {

constexpr size_t kMaxBars = 32;            // more would be a chart longer than a screen
constexpr double kMinReportedPercent = 2;  // percent of the time, as in the verdict of one run

std::string ShownSeconds(double seconds) { return Shown(seconds, Unit::kSeconds); }

// Returns "an iteration takes 2.60 s, 12 % longer than the fastest rank's".
std::string Headline(const ReportedRun& run, const JobRanks& ranks) {
  const size_t count = run.ranks.size();
  const std::string head = absl::StrCat(count, count == 1 ? " rank of the job" : " ranks of the job");
  const ReportFacts& facts = ranks.facts[ranks.slowest];
  const std::string& name = ranks.names[ranks.slowest];
  switch (ranks.by) {
    case SlowestBy::kNothing:
      return absl::StrCat(head, ": the slowest is not known, since no file has times.");
    case SlowestBy::kIteration:
      return absl::StrCat(
          head, ": ", name, " is the slowest, an iteration takes ", ShownSeconds(*ranks.slowest_s),
          " there and ", ShownSeconds(*ranks.fastest_s), " on the fastest (",
          Shown(100 * (*ranks.slowest_s / *ranks.fastest_s - 1), Unit::kPercent), " longer).");
    case SlowestBy::kLostTime: break;
  }
  const std::string times =
      ranks.slowest_s && count > 1
          ? absl::StrCat("they are equally fast, an iteration takes ", ShownSeconds(*ranks.slowest_s), "; ")
          : "";
  if (*facts.lost_percent < kMinReportedPercent)
    return absl::StrCat(head, ": ", times, "none lost more than ", Shown(*facts.lost_percent, Unit::kPercent),
                        " of its time.");
  return absl::StrCat(head, ": ", times, name, " lost most, ", Shown(*facts.lost_percent, Unit::kPercent),
                      " of its time.");
}

std::string Moved(const ReportedRun& run, const JobRanks& ranks) {
  if (!ranks.spilled_bytes || *ranks.spilled_bytes <= 0) return "";
  double least = 0, most = 0;
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const double bytes = *run.ranks[r].data.metrics.spilled_bytes;
    least = r == 0 ? bytes : std::min(least, bytes);
    most = std::max(most, bytes);
  }
  return absl::StrCat(Shown(*ranks.spilled_bytes, Unit::kBytes), " left all GPUs together, ",
                      Shown(least, Unit::kBytes), " to ", Shown(most, Unit::kBytes), " each.");
}

// Returns what was waited for most, with its share of the run.
std::string LostShareText(const ReportFacts& facts) {
  if (facts.lost_by_cause.empty() || facts.lost_by_cause.front().second <= 0) return "";
  return facts.lost_by_cause.front().first;
}

Table TimeTable(const ReportedRun& run, const JobRanks& ranks) {
  Table table{"rank_times",
              "The time of each rank",
              {{"rank", {}},
               {"one iteration", Unit::kSeconds},
               {"kernels alone", Unit::kSeconds},
               {"time lost", Unit::kPercent},
               {"share of the bound, at least", Unit::kPercent},
               {"most of it waited", {}},
               {"", {}}},
              {}};
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const ReportFacts& facts = ranks.facts[r];
    const bool ended = run.ranks[r].data.job.ended.value_or(true);
    std::string note = r == ranks.slowest && ranks.by != SlowestBy::kNothing ? "the slowest" : "";
    if (!ended) absl::StrAppend(&note, note.empty() ? "" : "; ", "had not ended, or was killed");
    table.rows.push_back({TextCell(ranks.names[r]), NumberCell(facts.iteration_s), NumberCell(facts.ideal_s),
                          NumberCell(facts.lost_percent), NumberCell(facts.percent_of_bound),
                          TextCell(LostShareText(facts)), TextCell(note)});
  }
  return table;
}

Table BytesTable(const ReportedRun& run, const JobRanks& ranks) {
  Table table{"rank_bytes",
              "Memory and moved bytes of each rank",
              {{"rank", {}},
               {"GPU budget", Unit::kBytes},
               {"held at the peak", Unit::kBytes},
               {"to host memory", Unit::kBytes},
               {"to the disk", Unit::kBytes},
               {"came back", Unit::kBytes},
               {"of it in time", Unit::kPercent}},
              {}};
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const ReportMetrics& metrics = run.ranks[r].data.metrics;
    const bool some = metrics.fetched_bytes.value_or(0) > 0 && metrics.in_time_bytes;
    table.rows.push_back(
        {TextCell(ranks.names[r]), NumberCell(ranks.facts[r].budget_bytes),
         NumberCell(ranks.facts[r].peak_live_bytes), NumberCell(metrics.host_spilled_bytes),
         NumberCell(metrics.disk_spilled_bytes), NumberCell(metrics.fetched_bytes),
         NumberCell(some ? Known(100 * *metrics.in_time_bytes / *metrics.fetched_bytes) : std::nullopt)});
  }
  return table;
}

// Shows the value that most ranks have, and which ranks have another.
Table DifferenceTable(const JobRanks& ranks) {
  Table table{
      "rank_differences", "Differences between the ranks", {{"", {}}, {"most", {}}, {"others", {}}}, {}};
  const auto shown = [](const std::string& value) { return value.empty() ? "not given" : value; };
  for (const RankDifference& one : ranks.differences) {
    std::map<std::string, std::vector<std::string>> who;  // by value
    for (size_t r = 0; r < one.values.size(); ++r) who[one.values[r]].push_back(ranks.names[r]);
    const auto most = std::ranges::max_element(
        who, [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    std::vector<std::string> rest;
    for (auto it = who.begin(); it != who.end(); ++it) {
      if (it != most) rest.push_back(absl::StrCat(shown(it->first), ": ", absl::StrJoin(it->second, "; ")));
    }
    table.rows.push_back(
        {TextCell(one.what), TextCell(shown(most->first)), TextCell(absl::StrJoin(rest, ". "))});
  }
  return table;
}

// If there are more ranks than the chart has bars for, it shows those with the longest iterations, in the
// order of the table.
std::optional<Chart> PartsChart(const ReportedRun& run, const JobRanks& ranks) {
  std::vector<size_t> order(run.ranks.size());
  std::iota(order.begin(), order.end(), 0);
  std::string words = "The GPU has work during kernels alone.";
  if (order.size() > kMaxBars) {
    std::ranges::stable_sort(order, [&ranks](size_t a, size_t b) {
      return ranks.facts[a].iteration_s.value_or(0) > ranks.facts[b].iteration_s.value_or(0);
    });
    order.resize(kMaxBars);
    std::ranges::sort(order);
    absl::StrAppend(&words, " The ", kMaxBars, " ranks with the longest iterations.");
  }
  std::vector<std::string> names;
  std::vector<IterationParts> parts;
  for (const size_t r : order) {
    names.push_back(ranks.names[r]);
    parts.push_back(PartsOf(run.ranks[r].data, ranks.facts[r]));
  }
  return IterationPartsChart(names, parts, std::move(words));
}

Section Ranks(const ReportedRun& run, const JobRanks& ranks) {
  Section section{"ranks", "", {}, {}, {}, {}, {}};
  const auto figure = [](const char* key, const char* label, const Known& value, Unit unit) {
    return Figure{key, label, value, unit, value ? "" : "not in the files of all ranks"};
  };
  section.metrics = {
      figure("ranks", "ranks", static_cast<double>(run.ranks.size()), Unit::kCount),
      figure("slowest_seconds", "one iteration, slowest rank", ranks.slowest_s, Unit::kSeconds),
      figure("fastest_seconds", "one iteration, fastest rank", ranks.fastest_s, Unit::kSeconds),
      figure("all_spilled_bytes", "left the GPUs", ranks.spilled_bytes, Unit::kBytes),
      figure("all_fetched_bytes", "came back to them", ranks.fetched_bytes, Unit::kBytes),
      figure("all_ssd_written_bytes", "written by all", ranks.disk_written_bytes, Unit::kBytes)};
  if (!ranks.absent.empty())
    section.missing.push_back(
        absl::StrCat("No files of these ranks of the job: ", absl::StrJoin(ranks.absent, "; "),
                     ". They are not on this page."));
  if (auto chart = PartsChart(run, ranks))
    section.charts.push_back(*std::move(chart));
  else
    section.missing.push_back("No times of iterations: no rank's file has any.");
  section.tables = {TimeTable(run, ranks), BytesTable(run, ranks)};
  if (ranks.differences.empty())
    section.words.push_back("Settings, devices and versions are the same for all ranks.");
  else
    section.tables.push_back(DifferenceTable(ranks));
  return section;
}

}  // namespace

ReportModel RanksModel(const ReportedRun& run, const JobRanks& ranks, ReportModel slowest) {
  ReportModel model;
  model.title = std::move(slowest.title);
  model.verdict = {Headline(run, ranks)};
  if (std::string moved = Moved(run, ranks); !moved.empty()) model.verdict.push_back(std::move(moved));
  model.sections.push_back(Ranks(run, ranks));
  const std::string& name = ranks.names[ranks.slowest];
  Section details{"slowest",
                  absl::StrCat(ranks.by == SlowestBy::kNothing ? "The first: " : "The slowest: ", name),
                  {absl::StrJoin(slowest.verdict, " ")},
                  {},
                  {},
                  {},
                  {}};
  model.sections.push_back(std::move(details));
  std::ranges::move(slowest.sections, std::back_inserter(model.sections));
  return model;
}

}  // namespace spillway::integration
