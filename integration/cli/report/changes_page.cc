#include "integration/cli/report/changes_page.h"

#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "integration/cli/page/chart_parts.h"
#include "integration/settings/environment.h"

namespace spillway::integration {
namespace {

// Returns a number among rows of other units, with its text.
Cell Mixed(const Known& value, Unit unit) {
  return value ? Cell{Shown(*value, unit), value} : Cell{"not known", std::nullopt};
}

// Returns "+1.25 GiB" or "-3.1 points".
std::string Signed(double value, Unit unit) {
  const char* const sign = value > 0 ? "+" : value < 0 ? "-" : "";
  if (unit == Unit::kPercent) return absl::StrCat(sign, Shown(std::abs(value), Unit::kCount), " points");
  return absl::StrCat(sign, Shown(std::abs(value), unit));
}

Cell AbsoluteCell(const Change& change) {
  const Known absolute = change.Absolute();
  return absolute ? Cell{Signed(*absolute, change.unit), absolute} : Cell();
}

Cell PercentCell(const Change& change) {
  const Known percent = change.Percent();
  if (!percent) return {};
  const char* const sign = *percent > 0 ? "+" : *percent < 0 ? "-" : "";
  return {absl::StrCat(sign, Shown(std::abs(*percent), Unit::kPercent)), percent};
}

Table TableOf(const ChangeGroup& group, const RunLabel& before, const RunLabel& after) {
  Table table{
      absl::StrCat("changes_", group.key),
      group.title,
      {{"", {}}, {before.name, {}}, {after.name, {}}, {"change", {}}, {"relative", {}}, {"likely cause", {}}},
      {}};
  for (const Change& change : group.changes) {
    if (!change.before && !change.after) continue;
    table.rows.push_back({TextCell(change.label), Mixed(change.before, change.unit),
                          Mixed(change.after, change.unit), AbsoluteCell(change), PercentCell(change),
                          TextCell(change.cause)});
  }
  return table;
}

Table TextTable(const char* key, const char* title, const std::vector<TextChange>& list,
                const RunLabel& before, const RunLabel& after, const char* none) {
  Table table{key, title, {{"", {}}, {before.name, {}}, {after.name, {}}}, {}};
  const auto shown = [none](const std::string& text) { return TextCell(text.empty() ? none : text); };
  for (const TextChange& change : list)
    table.rows.push_back({TextCell(change.what), shown(change.before), shown(change.after)});
  return table;
}

Table RunsTable(const ComparedRun& before, const ComparedRun& after, const RunLabel& label_before,
                const RunLabel& label_after) {
  Table table{"runs", "The runs", {{"", {}}, {label_before.name, {}}, {label_after.name, {}}}, {}};
  const auto row = [&](const char* what, std::string one, std::string other) {
    if (!one.empty() || !other.empty())
      table.rows.push_back({TextCell(what), TextCell(std::move(one)), TextCell(std::move(other))});
  };
  const auto seconds = [](const ComparedRun& run) {
    return run.facts->seconds ? Shown(*run.facts->seconds, Unit::kSeconds) : std::string();
  };
  const auto command = [](const ComparedRun& run) { return absl::StrJoin(run.data->job.command, " "); };
  row("rank", label_before.rank, label_after.rank);
  row("command", command(before), command(after));
  row("ran", seconds(before), seconds(after));
  row("host", before.data->job.host, after.data->job.host);
  row("device", before.data->job.device, after.data->job.device);
  return table;
}

// Charts the moved bytes, by tier and direction; none if nothing moved.
std::optional<Chart> MovedChart(const RunChanges& changes, const RunLabel& before, const RunLabel& after) {
  double most = 0;
  Json order = Json::array();
  const ChangeGroup* moved = nullptr;
  for (const ChangeGroup& group : changes.groups) {
    if (group.key == "moved") moved = &group;
  }
  for (const Change& change : moved->changes) {
    if (change.unit == Unit::kBytes)
      most = std::max({most, change.before.value_or(0), change.after.value_or(0)});
  }
  if (most <= 0) return std::nullopt;
  const AxisUnit unit = AxisUnitFor(most, Unit::kBytes);
  Chart chart;
  chart.key = "moved";
  chart.title = moved->title;
  chart.legend = {{before.name, "var(--quiet)"}, {after.name, "var(--gpu)"}};
  Json rows = Json::array();
  for (const Change& change : moved->changes) {
    if (change.unit != Unit::kBytes) continue;
    order.push_back(change.label);
    const Known values[] = {change.before, change.after};
    for (size_t i = 0; i < 2; ++i) {
      if (values[i])
        rows.push_back(Json{
            {"name", change.label}, {"run", chart.legend[i].name}, {"v", Rounded(*values[i] / unit.factor)}});
    }
  }
  const Json y = {{"field", "name"},
                  {"type", "nominal"},
                  {"sort", order},
                  {"title", nullptr},
                  {"axis", {{"ticks", false}}}};
  const Json runs = Json::array({before.name, after.name});
  chart.spec = Json{{"data", Values(std::move(rows))},
                    {"mark", {{"type", "bar"}, {"tooltip", true}}},
                    {"encoding",
                     {{"x", Quantity("v", unit.name)},
                      {"y", y},
                      {"yOffset", {{"field", "run"}, {"type", "nominal"}, {"sort", runs}}},
                      {"color", Colors("run", chart.legend)}}}};
  return chart;
}

// Returns "An iteration takes 1.80 s instead of 2.40 s: 25 % shorter."
std::string Headline(const RunChanges& changes) {
  const Change& iteration = *changes.Find("iteration_seconds");
  if (const Known percent = iteration.Percent()) {
    const std::string times = absl::StrCat(Shown(*iteration.after, Unit::kSeconds), " instead of ",
                                           Shown(*iteration.before, Unit::kSeconds));
    if (changes.within_spread)
      return absl::StrCat("An iteration takes ", times,
                          ", which is within the variation of the iterations of each run.");
    if (!iteration.IsNotable()) return absl::StrCat("An iteration takes as long: ", times, ".");
    return absl::StrCat("An iteration takes ", times, ": ", Shown(std::abs(*percent), Unit::kPercent),
                        *percent < 0 ? " shorter." : " longer.");
  }
  const Change& lost = *changes.Find("lost_percent");
  if (lost.before && lost.after)
    return absl::StrCat("The run lost ", Shown(*lost.after, Unit::kPercent), " of its time instead of ",
                        Shown(*lost.before, Unit::kPercent), ".");
  return "The speed of both runs is not known: no iteration repeated itself, and no file has lost "
         "time.";
}

// Uses the settings' own names, since they go into a command.
std::string SettingsSentence(const RunChanges& changes) {
  if (changes.settings.empty()) return "The settings are the same.";
  std::vector<std::string> texts;
  const auto shown = [](const std::string& text) { return text.empty() ? "not given" : text; };
  for (const TextChange& one : changes.settings)
    texts.push_back(
        absl::StrCat(VariableOf(one.what), " ", shown(one.after), " instead of ", shown(one.before)));
  return absl::StrCat("Settings that differ: ", absl::StrJoin(texts, "; "), ".");
}

std::string MachineSentence(const RunChanges& changes) {
  std::vector<std::string> names;
  for (const TextChange& one : changes.machine) names.push_back(one.what);
  for (const TextChange& one : changes.job) {
    if (one.what == "command") names.push_back("command");
  }
  if (names.empty()) return "";
  return absl::StrCat("These differ, too: ", absl::StrJoin(names, ", "), ".");
}

std::vector<std::string> Verdict(const RunChanges& changes) {
  std::vector<std::string> verdict = {Headline(changes)};
  const Change& iteration = *changes.Find("iteration_seconds");
  const Change& main = iteration.Percent() ? iteration : *changes.Find("lost_percent");
  if (!main.cause.empty() && !changes.within_spread)
    verdict.push_back(absl::StrCat("Likely cause: ", main.cause, "."));
  verdict.push_back(SettingsSentence(changes));
  if (std::string machine = MachineSentence(changes); !machine.empty()) verdict.push_back(std::move(machine));
  return verdict;
}

Section Differences(const RunChanges& changes, const RunLabel& before, const RunLabel& after) {
  Section section{"settings", "Settings, machine and job", {}, {}, {}, {}, {}};
  if (changes.settings.empty())
    section.words.push_back("The settings that were given are the same.");
  else
    section.tables.push_back(
        TextTable("setting_changes", "Settings", changes.settings, before, after, "not given"));
  if (changes.machine.empty())
    section.words.push_back("The machines are the same as far as the files tell.");
  else
    section.tables.push_back(
        TextTable("machine_changes", "Machine", changes.machine, before, after, "not known"));
  return section;
}

}  // namespace

ReportModel ChangesModel(const ComparedRun& before, const ComparedRun& after, const RunChanges& changes,
                         const RunLabel& label_before, const RunLabel& label_after) {
  ReportModel model;
  model.title = absl::StrCat(label_before.name, " and ", label_after.name);
  model.verdict = Verdict(changes);
  Section section{"changes", "", {}, {}, {}, {}, {}};
  section.words.push_back(absl::StrCat(
      "A likely cause is what else has changed in the files, where it can explain the change; changes below ",
      "2 % have none."));
  if (!changes.per_iteration)
    section.missing.push_back(
        "No iteration is known of both, so bytes and lost time are those of the whole runs.");
  if (auto chart = IterationPartsChart({label_before.name, label_after.name}, {changes.before, changes.after},
                                       "The GPU has work during kernels alone."))
    section.charts.push_back(*std::move(chart));
  else
    section.missing.push_back("No times of iterations: neither file has any.");
  if (auto chart = MovedChart(changes, label_before, label_after))
    section.charts.push_back(*std::move(chart));
  else
    section.missing.push_back("Nothing was moved in either run.");
  for (const ChangeGroup& group : changes.groups) {
    if (Table table = TableOf(group, label_before, label_after); !table.rows.empty())
      section.tables.push_back(std::move(table));
  }
  model.sections = {std::move(section), Differences(changes, label_before, label_after)};
  Section runs{"runs", "The runs", {}, {}, {}, {}, {RunsTable(before, after, label_before, label_after)}};
  model.sections.push_back(std::move(runs));
  return model;
}

std::pair<std::string, std::string> ShortNames(const std::string& before, const std::string& after) {
  namespace fs = std::filesystem;
  const auto name_of = [](fs::path path, int parents) {
    if (path.filename().empty()) path = path.parent_path();  // "runs/"
    std::string name = path.filename().string();
    if (absl::EndsWith(name, ".json")) name.resize(name.size() - 5);
    for (; parents > 0 && path.has_parent_path() && path.parent_path() != path; --parents) {
      path = path.parent_path();
      if (!path.filename().empty()) name = absl::StrCat(path.filename().string(), "/", name);
    }
    return name;
  };
  constexpr int kMaxParents = 3;
  for (int parents = 0; parents <= kMaxParents; ++parents) {
    std::pair<std::string, std::string> names(name_of(before, parents), name_of(after, parents));
    if (names.first != names.second) return names;
  }
  return {before == after ? "first" : before, before == after ? "second" : after};
}

}  // namespace spillway::integration
