#include "integration/report/run_data.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace spillway::integration {
namespace {

using nlohmann::ordered_json;

constexpr const char* kMoveKinds[] = {"gpu_to_host", "host_to_gpu", "gpu_to_disk", "disk_to_gpu",
                                      "host_to_disk"};
static_assert(std::size(kMoveKinds) == static_cast<size_t>(allocator::MoveKind::kCount));
constexpr const char* kStallCauses[] = {"chunks", "arrival", "gpu_arrival", "run_ahead"};
static_assert(std::size(kStallCauses) == static_cast<size_t>(allocator::StallCause::kCount));
constexpr const char* kMemoryKeys[] = {"gpu_bytes", "resident_bytes", "host_bytes", "disk_bytes",
                                       "live_bytes"};
static_assert(std::size(kMemoryKeys) == static_cast<size_t>(MemoryFigure::kCount));

// Texts from users need not be UTF-8.
std::string Dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Columns are written by hand, since a run has 100,000 moves.
void AppendSeconds(int64_t nanos, std::string* text) {
  const int64_t micros = (nanos + (nanos < 0 ? -500 : 500)) / 1000;
  if (micros < 0) absl::StrAppend(text, "-");
  const auto size = static_cast<uint64_t>(micros < 0 ? -micros : micros);
  absl::StrAppend(text, size / 1'000'000, ".", absl::Dec(size % 1'000'000, absl::kZeroPad6));
}

// Returns "[1,2,3]" of the rows' values, each appended by `append`.
template <typename Rows, typename Append>
std::string Column(const Rows& rows, Append append) {
  std::string text = "[";
  for (const auto& row : rows) {
    if (text.size() > 1) text += ',';
    append(row, &text);
  }
  return text + "]";
}

template <typename Rows, typename Nanos>
std::string SecondsColumn(const Rows& rows, Nanos nanos) {
  return Column(rows, [&](const auto& row, std::string* text) { AppendSeconds(nanos(row), text); });
}

template <typename Rows, typename Value>
std::string NumberColumn(const Rows& rows, Value value) {
  return Column(rows, [&](const auto& row, std::string* text) { absl::StrAppend(text, value(row)); });
}

std::string SeriesColumn(const TimeSeries& series, size_t figure) {
  std::string text = "[";
  for (size_t interval = 0; interval < series.size(); ++interval)
    absl::StrAppend(&text, interval > 0 ? "," : "", series.at(figure, interval));
  return text + "]";
}

std::string JobJson(const RunData& data) {
  const RunFacts& facts = *data.facts;
  ordered_json json;
  const auto add = [&json](const char* key, const std::string& value) {
    if (!value.empty()) json[key] = value;
  };
  json["command"] = facts.command;
  json["pid"] = facts.pid;
  json["rank"] = facts.rank;
  if (facts.local_size > 0) json["local_size"] = facts.local_size;
  add("host", facts.host);
  add("spillway", facts.spillway);
  add("framework", facts.framework);
  add("driver", facts.driver);
  json["device_index"] = data.device->device;
  add("device", data.device->name);
  json["device_bytes"] = data.device->device_bytes;
  json["started_unix"] = facts.started_unix;
  json["seconds"] = data.seconds;
  json["ended"] = data.ended;
  return Dump(json);
}

std::string SettingsJson(const RunFacts& facts) {
  ordered_json json = ordered_json::object();
  for (const RunFacts::Setting& setting : facts.settings)
    json[setting.name] = {{"value", setting.value}, {"from", setting.from}};
  return Dump(json);
}

void AddDrive(const SpillDrive& drive, ordered_json* disk) {
  if (!drive.name.empty()) (*disk)["drive"] = drive.name;
  if (drive.ranks > 0) (*disk)["ranks"] = drive.ranks;
}

std::string CapacityJson(const RunData& data) {
  const ReportedDevice& device = *data.device;
  ordered_json json = {{"gpu_bytes", device.blocks_bytes + device.process_bytes},
                       {"gpu_blocks_bytes", device.blocks_bytes},
                       {"gpu_reserve_bytes", device.reserve_bytes},
                       {"gpu_taken_bytes", device.taken_bytes},
                       {"host_bytes", data.facts->host_bytes}};
  json["disks"] = ordered_json::array();
  for (size_t i = 0; i < data.facts->directories.size(); ++i) {
    ordered_json disk = {{"directory", data.facts->directories[i]}};
    if (i < data.disk_capacity.size()) disk["bytes"] = data.disk_capacity[i];
    if (i < data.facts->drives.size()) AddDrive(data.facts->drives[i], &disk);
    json["disks"].push_back(disk);
  }
  return Dump(json);
}

std::string MemoryJson(const TimeSeries& memory) {
  std::string text = absl::StrCat("{\"every_s\":", memory.every_seconds());
  for (size_t i = 0; i < std::size(kMemoryKeys); ++i)
    absl::StrAppend(&text, ",\"", kMemoryKeys[i], "\":", SeriesColumn(memory, i));
  return text + "}";
}

std::string TransfersJson(const TimeSeries& transfers, const std::vector<std::string>& directories) {
  std::string text = absl::StrCat(
      "{\"every_s\":", transfers.every_seconds(),
      ",\"to_host_bytes\":", SeriesColumn(transfers, static_cast<size_t>(TransferFigure::kToHost)),
      ",\"to_gpu_bytes\":", SeriesColumn(transfers, static_cast<size_t>(TransferFigure::kToGpu)),
      ",\"disks\":[");
  const auto first = static_cast<size_t>(TransferFigure::kDirectories);
  for (size_t i = 0; i < directories.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? "," : "", "{\"directory\":", Dump(directories[i]),
                    ",\"written_bytes\":", SeriesColumn(transfers, first + 2 * i),
                    ",\"read_bytes\":", SeriesColumn(transfers, first + 2 * i + 1), "}");
  }
  return text + "]}";
}

std::string IterationsJson(const std::vector<LoggedIteration>& iterations) {
  const auto nanos = [](double seconds) { return static_cast<int64_t>(seconds * 1e9); };
  return absl::StrCat(
      "{\"start_s\":",
      SecondsColumn(iterations, [&](const LoggedIteration& one) { return nanos(one.start_seconds); }),
      ",\"seconds\":",
      SecondsColumn(iterations, [&](const LoggedIteration& one) { return nanos(one.seconds); }), ",\"kind\":",
      NumberColumn(iterations, [](const LoggedIteration& one) { return static_cast<int>(one.kind); }), "}");
}

std::string MovesJson(const RunData& data) {
  const std::vector<allocator::EndedMove>& moves = data.motion.moves;
  const int64_t origin = data.facts->origin_nanos;
  using Move = allocator::EndedMove;
  return absl::StrCat(
      "{\"start_s\":", SecondsColumn(moves, [&](const Move& move) { return move.began - origin; }),
      ",\"seconds\":", SecondsColumn(moves, [](const Move& move) { return move.ended - move.began; }),
      ",\"bytes\":", NumberColumn(moves, [](const Move& move) { return move.bytes; }),
      ",\"block\":", NumberColumn(moves, [](const Move& move) { return move.block.index(); }),
      ",\"kind\":", NumberColumn(moves, [](const Move& move) { return static_cast<int>(move.kind); }), "}");
}

// Numbers names; equal names have one number.
class NameList {
 public:
  int IndexOf(const std::string& name) {
    const auto [it, is_new] = places_.try_emplace(name, static_cast<int>(names_.size()));
    if (is_new) names_.push_back(name);
    return it->second;
  }
  std::string Json() const { return Dump(names_); }

 private:
  std::map<std::string, int> places_;
  std::vector<std::string> names_;
};

std::string StallsJson(const RunData& data, NameList* kernels) {
  using allocator::Stall;
  const std::vector<Stall>& stalls = data.motion.stalls;
  const int64_t origin = data.facts->origin_nanos;
  const auto kernel_of = [&](const Stall& stall) {
    const auto found = data.kernel_names.find(stall.tag);
    const bool known = found != data.kernel_names.end() && !found->second.empty();
    return known ? kernels->IndexOf(found->second) : -1;
  };
  const auto block_of = [](const Stall& stall) {
    return stall.block.valid() ? static_cast<int64_t>(stall.block.index()) : -1;
  };
  return absl::StrCat(
      "{\"start_s\":", SecondsColumn(stalls, [&](const Stall& stall) { return stall.began - origin; }),
      ",\"seconds\":",
      SecondsColumn(stalls, [](const Stall& stall) { return static_cast<int64_t>(stall.nanos); }),
      ",\"lost_s\":",
      SecondsColumn(stalls, [](const Stall& stall) { return static_cast<int64_t>(stall.lost_nanos); }),
      ",\"cause\":", NumberColumn(stalls, [](const Stall& stall) { return static_cast<int>(stall.cause); }),
      ",\"kernel\":", NumberColumn(stalls, kernel_of), ",\"block\":", NumberColumn(stalls, block_of), "}");
}

std::string BlocksJson(const std::vector<ReportedBlock>& blocks) {
  ordered_json json = ordered_json::array();
  for (const ReportedBlock& block : blocks) {
    ordered_json entry = {{"block", block.block.index()},
                          {"bytes", block.bytes},
                          {"moved_bytes", block.sums.moved_bytes},
                          {"stalled_s", static_cast<double>(block.sums.stalled_nanos) / 1e9}};
    if (!block.last_kernel.empty()) entry["last_kernel"] = block.last_kernel;
    json.push_back(entry);
  }
  return Dump(json);
}

std::string KernelsJson(const std::vector<ReportedKernel>& kernels) {
  ordered_json json = ordered_json::array();
  for (const ReportedKernel& kernel : kernels) {
    ordered_json entry = {{"kernel", kernel.name}};
    if (kernel.launches) entry["launches"] = *kernel.launches;
    if (kernel.seconds) entry["seconds"] = *kernel.seconds;
    entry["stalled_s"] = kernel.stalled_seconds;
    json.push_back(entry);
  }
  return Dump(json);
}

std::string ReachingMember(const std::vector<ReachingKernel>& kernels) {
  ordered_json json = ordered_json::array();
  for (const ReachingKernel& kernel : kernels) {
    json.push_back({{"kernel", kernel.name},
                    {"launches", kernel.launches},
                    {"bytes", kernel.bytes},
                    {"most_bytes", kernel.most_bytes}});
  }
  return absl::StrCat("\"reaching_kernels\":", Dump(json), ",\n");
}

// Returns the members that are there only if an iteration is known.
std::string IterationMembers(const IterationFacts& iteration) {
  ordered_json phases = ordered_json::array();
  for (const IterationFacts::Phase& phase : iteration.phases) {
    phases.push_back({{"name", phase.name}, {"from", phase.from}, {"to", phase.to}});
    if (phase.guessed) phases.back()["guessed"] = true;
  }
  std::string text;
  if (!iteration.phases.empty()) absl::StrAppend(&text, "\"phases\":", Dump(phases), ",\n");
  if (iteration.active_share > 0)
    absl::StrAppend(&text, "\"active\":", Dump({{"share", iteration.active_share}}), ",\n");
  return absl::StrCat(text, "\"iteration\":\"", absl::Base64Escape(iteration.file), "\",\n");
}

std::string PowerMember(const Power& power) {
  ordered_json json;
  if (power.gpu_joules) json["gpu_joules"] = *power.gpu_joules;
  if (power.cpu_joules) json["cpu_joules"] = *power.cpu_joules;
  json["source"] = power.source;
  return absl::StrCat("\"power\":", Dump(json), ",\n");
}

const char* WordOf(allocator::PausedBy by) {
  switch (by) {
    case allocator::PausedBy::kJob: return "job";
    case allocator::PausedBy::kOutside: return "outside";
    case allocator::PausedBy::kIdle: return "idle";
  }
  return "";
}

std::string PausesMember(const RunData& data) {
  const auto since = [](int64_t from, int64_t to) { return static_cast<double>(to - from) / 1e9; };
  ordered_json json = ordered_json::array();
  for (const ReportedPause& pause : data.pauses) {
    ordered_json entry = {{"start_s", since(data.facts->origin_nanos, pause.began)},
                          {"leaving_s", since(pause.began, pause.left)}};
    if (pause.resumed != 0) entry["seconds"] = since(pause.began, pause.resumed);
    entry["by"] = WordOf(pause.by);
    if (!pause.tag.empty()) entry["region"] = pause.tag;
    entry.update({{"clean_bytes", pause.clean_bytes},
                  {"host_bytes", pause.host_bytes},
                  {"disk_bytes", pause.disk_bytes},
                  {"dropped_bytes", pause.dropped_bytes}});
    json.push_back(std::move(entry));
  }
  return absl::StrCat("\"pauses\":", Dump(json), ",\n");
}

}  // namespace

std::string RunDataJson(const RunData& data) {
  NameList kernels;
  const std::string stalls = StallsJson(data, &kernels);
  return absl::StrCat(
      "{\"format\":\"spillway-report\",\"version\":1,\n\"job\":", JobJson(data),
      ",\n\"settings\":", SettingsJson(*data.facts), ",\n\"capacity\":", CapacityJson(data),
      ",\n\"figures\":", data.metrics, ",\n\"memory\":", MemoryJson(*data.memory),
      ",\n\"transfers\":", TransfersJson(*data.transfers, data.facts->directories),
      ",\n\"iterations\":", IterationsJson(data.iterations),
      ",\n\"iteration_kinds\":[\"marked\",\"repeated\"],\n\"moves\":", MovesJson(data),
      ",\n\"move_kinds\":", Dump(kMoveKinds), ",\n\"stalls\":", stalls,
      ",\n\"stall_causes\":", Dump(kStallCauses), ",\n\"kernels\":", kernels.Json(),
      ",\n\"largest_blocks\":", BlocksJson(data.largest_blocks),
      ",\n\"costliest_kernels\":", KernelsJson(data.costliest_kernels), ",\n",
      data.reaching_kernels.empty() ? "" : ReachingMember(data.reaching_kernels),
      data.advice.empty() ? "" : absl::StrCat("\"advice\":", Dump(data.advice), ",\n"),
      data.iteration ? IterationMembers(*data.iteration) : "", data.power ? PowerMember(*data.power) : "",
      data.pauses.empty() ? "" : PausesMember(data),
      "\"dropped\":", Dump({{"moves", data.motion.moves_dropped}, {"stalls", data.motion.stalls_dropped}}),
      "}\n");
}

}  // namespace spillway::integration
