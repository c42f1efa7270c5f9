#include "integration/cli/report/chrome_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "integration/cli/report/report_data.h"

namespace spillway::integration {
namespace {

using nlohmann::ordered_json;

// Events that overlap need rows of their own, since a viewer takes those of one row as nested.
constexpr int kMaxRows = 64;  // for one name
// Starts and lengths are whole microseconds, so an event may seem to begin a little before the last one ends.
constexpr double kRounding = 2e-6;
// Groups of rows, in the order in which a viewer shows them.
constexpr int kIterations = 1;
constexpr int kStalls = 2;
constexpr int kPauses = 3;
constexpr int kMoves = 4;  // and one for each further kind of move

double Micros(double seconds) { return std::round(seconds * 1e9) / 1e3; }

struct Event {
  double start = 0, length = 0;  // seconds
  int group = 0;
  std::string name;
  ordered_json arguments;
};

class Writer {
 public:
  explicit Writer(int64_t pid) : pid_(pid) {}

  void NameProcess(const std::string& name) { AddMetadata("process_name", 0, {{"name", name}}); }
  void NameGroup(int group, const std::string& name) { groups_[group].name = name; }

  // Adds events of one group, in the order of their starts.
  void AddEvents(std::vector<Event> events) {
    std::ranges::stable_sort(events, {}, &Event::start);
    for (Event& event : events) {
      const int row = RowOf(event);  // may change its time
      ordered_json entry = {
          {"ph", "X"},  {"name", event.name},        {"cat", groups_[event.group].name}, {"pid", pid_},
          {"tid", row}, {"ts", Micros(event.start)}, {"dur", Micros(event.length)}};
      if (!event.arguments.empty()) entry["args"] = std::move(event.arguments);
      events_.push_back(std::move(entry));
    }
  }

  void AddCounter(const std::string& name, double seconds, const ordered_json& values) {
    events_.push_back(
        {{"ph", "C"}, {"name", name}, {"pid", pid_}, {"tid", 0}, {"ts", Micros(seconds)}, {"args", values}});
  }

  std::string Text(const ordered_json& about) const {
    ordered_json trace;
    trace["traceEvents"] = events_;
    trace["displayTimeUnit"] = "ms";
    trace["otherData"] = about;
    return trace.dump() + "\n";
  }

 private:
  struct Group {
    std::string name;
    std::vector<double> free_from;  // of each row, in seconds
  };

  void AddMetadata(const char* what, int tid, const ordered_json& arguments) {
    events_.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", pid_}, {"tid", tid}, {"ts", 0}, {"args", arguments}});
  }

  // Returns the first row of the group that is free then. If all are taken, returns the one that is free
  // first, and moves the event to that time.
  int RowOf(Event& event) {
    std::vector<double>& rows = groups_[event.group].free_from;
    auto row = std::ranges::find_if(rows, [&](double from) { return from <= event.start + kRounding; });
    if (row == rows.end() && static_cast<int>(rows.size()) < kMaxRows) {
      rows.push_back(0);
      row = rows.end() - 1;
      NameRow(event.group, static_cast<int>(rows.size()) - 1);
    } else if (row == rows.end()) {
      row = std::ranges::min_element(rows);
      event.start = *row;
    } else if (*row > event.start) {
      event.length = std::max(0.0, event.length - (*row - event.start));
      event.start = *row;
    }
    *row = event.start + event.length;
    return TidOf(event.group, static_cast<int>(row - rows.begin()));
  }

  void NameRow(int group, int row) {
    const std::string& name = groups_[group].name;
    const int tid = TidOf(group, row);
    AddMetadata("thread_name", tid, {{"name", row == 0 ? name : absl::StrCat(name, " ", row + 1)}});
    AddMetadata("thread_sort_index", tid, {{"sort_index", tid}});
  }

  static int TidOf(int group, int row) { return group * kMaxRows + row; }

  const int64_t pid_;
  std::map<int, Group> groups_;
  std::vector<ordered_json> events_;
};

// Returns the number of rows of one table, whose columns must have the same length. Throws the library's
// exception if one is not there.
size_t RowsOf(const nlohmann::json& table, std::initializer_list<const char*> columns, const char* name) {
  const size_t rows = table.at(*columns.begin()).size();
  for (const char* column : columns) {
    if (table.at(column).size() != rows)
      throw std::out_of_range(absl::StrCat(name, ".", column, " is not as long as the other columns"));
  }
  return rows;
}

// Returns a name of a list, by an index that is -1 if there is none.
std::string NameAt(const nlohmann::json& names, const nlohmann::json& index) {
  const int64_t at = index.get<int64_t>();
  return at < 0 ? std::string() : names.at(static_cast<size_t>(at)).get<std::string>();
}

void AddIterations(const nlohmann::json& data, Writer* writer) {
  const nlohmann::json& table = data.at("iterations");
  std::vector<Event> events;
  const size_t rows = RowsOf(table, {"start_s", "seconds", "kind"}, "iterations");
  for (size_t i = 0; i < rows; ++i) {
    events.push_back({table["start_s"][i], table["seconds"][i], kIterations, "iteration", {}});
    events.back().arguments["how"] = NameAt(data.at("iteration_kinds"), table["kind"][i]);
  }
  writer->NameGroup(kIterations, "iterations");
  writer->AddEvents(std::move(events));
}

void AddStalls(const nlohmann::json& data, Writer* writer) {
  const nlohmann::json& table = data.at("stalls");
  const size_t rows = RowsOf(table, {"start_s", "seconds", "lost_s", "cause", "kernel", "block"}, "stalls");
  std::vector<Event> events;
  for (size_t i = 0; i < rows; ++i) {
    Event event{table["start_s"][i],
                table["seconds"][i],
                kStalls,
                NameAt(data.at("stall_causes"), table["cause"][i]),
                {}};
    event.arguments["lost_s"] = table["lost_s"][i];
    if (const std::string kernel = NameAt(data.at("kernels"), table["kernel"][i]); !kernel.empty())
      event.arguments["kernel"] = kernel;
    if (table["block"][i] >= 0) event.arguments["block"] = table["block"][i];
    events.push_back(std::move(event));
  }
  writer->NameGroup(kStalls, "stalls");
  writer->AddEvents(std::move(events));
}

// A pause that was not resumed lasts until the file was written.
void AddPauses(const nlohmann::json& data, Writer* writer) {
  if (!data.contains("pauses")) return;
  std::vector<Event> events;
  for (const nlohmann::json& pause : data["pauses"]) {
    const double start = pause.at("start_s");
    const double end = data.at("job").at("seconds");
    Event event{start, pause.value("seconds", end - start), kPauses, "pause", {}};
    for (const char* argument :
         {"by", "region", "leaving_s", "clean_bytes", "host_bytes", "disk_bytes", "dropped_bytes"}) {
      if (pause.contains(argument)) event.arguments[argument] = pause[argument];
    }
    events.push_back(std::move(event));
  }
  writer->NameGroup(kPauses, "pauses");
  writer->AddEvents(std::move(events));
}

void AddMoves(const nlohmann::json& data, Writer* writer) {
  const nlohmann::json& table = data.at("moves");
  const nlohmann::json& kinds = data.at("move_kinds");
  std::map<int, std::vector<Event>> by_kind;
  const size_t rows = RowsOf(table, {"start_s", "seconds", "bytes", "block", "kind"}, "moves");
  for (size_t i = 0; i < rows; ++i) {
    const int kind = table["kind"][i];
    Event event{table["start_s"][i],
                table["seconds"][i],
                kMoves + kind,
                absl::StrCat("block ", table["block"][i].get<int64_t>()),
                {}};
    event.arguments["bytes"] = table["bytes"][i];
    by_kind[kind].push_back(std::move(event));
  }
  for (auto& [kind, events] : by_kind) {
    writer->NameGroup(kMoves + kind, NameAt(kinds, kind));
    writer->AddEvents(std::move(events));
  }
}

void AddCounters(const nlohmann::json& data, Writer* writer) {
  const nlohmann::json& memory = data.at("memory");
  const double every = memory.at("every_s");
  const size_t samples = RowsOf(memory, {"gpu_bytes", "host_bytes", "disk_bytes", "live_bytes"}, "memory");
  for (size_t i = 0; i < samples; ++i) {
    writer->AddCounter("memory, bytes", static_cast<double>(i) * every,
                       {{"gpu", memory["gpu_bytes"][i]},
                        {"host", memory["host_bytes"][i]},
                        {"disk", memory["disk_bytes"][i]}});
  }
  const nlohmann::json& transfers = data.at("transfers");
  const double interval = transfers.at("every_s");
  const size_t rows = RowsOf(transfers, {"to_host_bytes", "to_gpu_bytes"}, "transfers");
  for (size_t i = 0; i < rows; ++i) {
    writer->AddCounter("transfers, bytes a second", static_cast<double>(i) * interval,
                       {{"off the GPU", transfers["to_host_bytes"][i].get<double>() / interval},
                        {"to the GPU", transfers["to_gpu_bytes"][i].get<double>() / interval}});
  }
}

std::string Convert(const nlohmann::json& data) {
  const nlohmann::json& job = data.at("job");
  Writer writer(job.at("pid").get<int64_t>());
  writer.NameProcess(
      absl::StrCat("spillway, GPU ", job.value("device_index", 0), ", rank ", job.value("rank", 0)));
  AddIterations(data, &writer);
  AddStalls(data, &writer);
  AddPauses(data, &writer);
  AddMoves(data, &writer);
  AddCounters(data, &writer);
  return writer.Text({{"job", job}, {"dropped", data.at("dropped")}});
}

}  // namespace

absl::StatusOr<std::string> ChromeTrace(const std::string& data) {
  const auto parsed = ReadReportJson(data);
  if (!parsed.ok()) return parsed.status();
  try {
    return Convert(*parsed);
  } catch (const std::exception& wrong) {  // the library throws if something is not there
    return absl::InvalidArgumentError(wrong.what());
  }
}

}  // namespace spillway::integration
