#include "integration/cli/report/report_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/cli/common/json_fields.h"
#include "integration/cli/common/utf8.h"

namespace spillway::integration {
namespace {

constexpr char kFormat[] = "spillway-report";
constexpr int64_t kVersion = 1;

ReportJob JobOf(const JsonFields& fields) {
  ReportJob job;
  job.command = fields.Texts("command");
  job.host = fields.Text("host");
  job.spillway = fields.Text("spillway");
  job.framework = fields.Text("framework");
  job.driver = fields.Text("driver");
  job.device = fields.Text("device");
  job.pid = fields.Number("pid");
  job.rank = fields.Number("rank");
  job.local_size = fields.Number("local_size");
  job.device_index = fields.Number("device_index");
  job.device_bytes = fields.Number("device_bytes");
  job.started_unix = fields.Number("started_unix");
  job.seconds = fields.Number("seconds");
  job.ended = fields.Bool("ended");
  return job;
}

ReportCapacity CapacityOf(const JsonFields& fields) {
  ReportCapacity capacity;
  capacity.gpu_bytes = fields.Number("gpu_bytes");
  capacity.gpu_blocks_bytes = fields.Number("gpu_blocks_bytes");
  capacity.gpu_reserve_bytes = fields.Number("gpu_reserve_bytes");
  capacity.gpu_taken_bytes = fields.Number("gpu_taken_bytes");
  capacity.host_bytes = fields.Number("host_bytes");
  if (fields.Has("disks")) capacity.disks.emplace();
  for (const JsonFields& disk : fields.Objects("disks"))
    capacity.disks->push_back(
        {disk.Text("directory"), disk.Number("bytes"), {}, {}, disk.Text("drive"), disk.Number("ranks")});
  return capacity;
}

// Returns none if the link could not be measured.
std::optional<ReportLink> LinkOf(const JsonFields& link) {
  const auto rate = [&link](const char* name) { return link.Number(name).value_or(0); };
  const ReportLink measured = {rate("in"), rate("out"), rate("in_both"), rate("out_both")};
  const bool all = measured.in > 0 && measured.out > 0 && measured.in_both > 0 && measured.out_both > 0;
  return all ? std::optional(measured) : std::nullopt;
}

// Reads the device's own figures from its entry of "devices", rates and iterations among them.
void ReadDevice(const JsonFields& device, ReportMetrics* metrics) {
  if (const auto rates = device.Object("bytes_per_second")) {
    metrics->host_in = rates->Number("host_in");
    metrics->host_out = rates->Number("host_out");
    metrics->disk_in = rates->Number("disk_in");
    metrics->disk_out = rates->Number("disk_out");
  }
  if (const auto link = device.Object("link")) metrics->link = LinkOf(*link);
  if (const auto iteration = device.Object("iteration")) {
    metrics->iteration_s = iteration->Number("seconds");
    metrics->ideal_s = iteration->Number("ideal_seconds");
    metrics->bound_s = iteration->Number("bound_seconds");
    metrics->plan_s = iteration->Number("plan_seconds");
    metrics->per_iteration.host_spilled_bytes = iteration->Number("host_spilled_bytes");
    metrics->per_iteration.disk_spilled_bytes = iteration->Number("disk_spilled_bytes");
    metrics->per_iteration.host_fetched_bytes = iteration->Number("host_fetched_bytes");
    metrics->per_iteration.disk_fetched_bytes = iteration->Number("disk_fetched_bytes");
    if (const auto lost = iteration->Object("lost_seconds"))
      metrics->per_iteration.lost_seconds = lost->NumberMembers();
  }
}

// Reads moves and waits: the device's if the file has them so, otherwise those of all devices.
void ReadCounters(const JsonFields& fields, ReportMetrics* metrics) {
  metrics->budget_bytes = fields.Number("budget_bytes");
  metrics->peak_bytes = fields.Number("peak_bytes");
  metrics->peak_live_bytes = fields.Number("peak_live_bytes");
  metrics->spilled_bytes = fields.Number("spilled_bytes");
  metrics->host_spilled_bytes = fields.Number("host_spilled_bytes");
  metrics->disk_spilled_bytes = fields.Number("disk_spilled_bytes");
  metrics->fetched_bytes = fields.Number("fetched_bytes");
  metrics->host_fetched_bytes = fields.Number("host_fetched_bytes");
  metrics->disk_fetched_bytes = fields.Number("disk_fetched_bytes");
  metrics->in_time_bytes = fields.Number("in_time_bytes");
  metrics->stall_seconds = fields.Number("stall_seconds_total");
  if (const auto lost = fields.Object("lost_seconds")) metrics->lost_seconds = lost->NumberMembers();
}

ReportDirectory DirectoryOf(const JsonFields& fields) {
  ReportDirectory directory;
  directory.path = fields.Text("path");
  directory.engine = fields.Text("engine");
  directory.direct = fields.Bool("direct");
  directory.closed = fields.Bool("closed");
  directory.why_closed = fields.Text("why_closed");
  directory.last_closure = fields.Text("last_closure");
  directory.written_bytes = fields.Number("written_bytes");
  directory.read_bytes = fields.Number("read_bytes");
  directory.written_tb_per_day = fields.Number("written_tb_per_day");
  directory.errors = fields.Number("errors");
  directory.retries = fields.Number("retries");
  directory.mismatches = fields.Number("mismatches");
  directory.quarantined_slots = fields.Number("quarantined_slots");
  directory.closures = fields.Number("closures");
  return directory;
}

// `number`: the device's. An entry names its device, since a process need not use the devices from 0 on.
ReportMetrics MetricsOf(const JsonFields& fields, double number) {
  ReportMetrics metrics;
  const std::vector<JsonFields> devices = fields.Objects("devices");
  metrics.devices = std::max<size_t>(1, devices.size());
  const auto own = std::ranges::find_if(
      devices, [number](const JsonFields& device) { return device.Number("device") == number; });
  ReadCounters(own != devices.end() ? *own : fields, &metrics);
  if (own != devices.end()) ReadDevice(*own, &metrics);
  metrics.seconds = fields.Number("seconds");
  metrics.disk_written_bytes = fields.Number("disk_written_bytes");
  metrics.disk_read_bytes = fields.Number("disk_read_bytes");
  metrics.evictions_ended = fields.Text("evictions_ended");
  for (const JsonFields& directory : fields.Objects("directories"))
    metrics.directories.push_back(DirectoryOf(directory));
  return metrics;
}

double Interval(const JsonFields& fields) {
  const Known every = fields.Number("every_s");
  if (!every || *every <= 0) fields.Fail(fields.Path("every_s"), "absent or 0", "seconds above 0");
  return every.value_or(0);
}

ReportMemory MemoryOf(const JsonFields& fields) {
  ReportMemory memory;
  memory.every_s = Interval(fields);
  memory.gpu = fields.Numbers("gpu_bytes");
  memory.host = fields.Numbers("host_bytes");
  memory.disk = fields.Numbers("disk_bytes");
  memory.live = fields.Numbers("live_bytes");
  fields.CheckEqualRows({"gpu_bytes", "host_bytes", "disk_bytes", "live_bytes"});
  return memory;
}

ReportTransfers TransfersOf(const JsonFields& fields) {
  ReportTransfers transfers;
  transfers.every_s = Interval(fields);
  transfers.to_host = fields.Numbers("to_host_bytes");
  transfers.to_gpu = fields.Numbers("to_gpu_bytes");
  fields.CheckEqualRows({"to_host_bytes", "to_gpu_bytes"});
  for (const JsonFields& disk : fields.Objects("disks")) {
    transfers.disks.push_back(
        {disk.Text("directory"), {}, disk.Numbers("written_bytes"), disk.Numbers("read_bytes"), "", {}});
    disk.CheckEqualRows({"written_bytes", "read_bytes"});
  }
  return transfers;
}

ReportIterations IterationsOf(const JsonFields& fields) {
  ReportIterations iterations{fields.Numbers("start_s"), fields.Numbers("seconds")};
  fields.CheckEqualRows({"start_s", "seconds"});
  if (iterations.start_s.size() != iterations.seconds.size())
    fields.Fail(fields.Path("start_s"), "without the other column", "start_s and seconds");
  return iterations;
}

// Checks columns that every row needs: if one is there, none may be absent.
void NeedColumns(const JsonFields& fields, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!fields.Has(name)) fields.Fail(fields.Path(name), "absent", "a list");
  }
  fields.CheckEqualRows(names);
}

ReportMoves MovesOf(const JsonFields& all, const JsonFields& fields) {
  ReportMoves moves;
  moves.kinds = all.Texts("move_kinds");
  moves.start_s = fields.Numbers("start_s");
  moves.seconds = fields.Numbers("seconds");
  moves.bytes = fields.Numbers("bytes");
  NeedColumns(fields, {"start_s", "seconds", "bytes", "kind"});
  for (const auto& kind : fields.Indexes("kind", moves.kinds.size())) {
    if (!kind) fields.Fail(fields.Path("kind"), "-1 somewhere", "indexes of move_kinds");
    moves.kind.push_back(kind.value_or(0));
  }
  return moves;
}

ReportStalls StallsOf(const JsonFields& all, const JsonFields& fields) {
  ReportStalls stalls;
  stalls.causes = all.Texts("stall_causes");
  stalls.kernels = all.Texts("kernels");
  stalls.start_s = fields.Numbers("start_s");
  stalls.seconds = fields.Numbers("seconds");
  stalls.lost_s = fields.Numbers("lost_s");
  NeedColumns(fields, {"start_s", "seconds", "cause"});
  fields.CheckEqualRows({"start_s", "lost_s", "kernel"});
  for (const auto& cause : fields.Indexes("cause", stalls.causes.size())) {
    if (!cause) fields.Fail(fields.Path("cause"), "-1 somewhere", "indexes of stall_causes");
    stalls.cause.push_back(cause.value_or(0));
  }
  stalls.kernel = fields.Indexes("kernel", stalls.kernels.size());
  return stalls;
}

std::string BlockName(const JsonFields& row) {
  const Known number = row.Number("block");
  return number ? absl::StrFormat("%.0f", *number) : "";
}

void ReadTables(const JsonFields& all, ReportData* data) {
  for (const JsonFields& row : all.Objects("largest_blocks"))
    data->largest_blocks.push_back({BlockName(row), row.Text("last_kernel"), row.Number("bytes"),
                                    row.Number("moved_bytes"), row.Number("stalled_s")});
  for (const JsonFields& row : all.Objects("costliest_kernels"))
    data->costliest_kernels.push_back(
        {row.Text("kernel"), row.Number("launches"), row.Number("seconds"), row.Number("stalled_s")});
  for (const JsonFields& row : all.Objects("reaching_kernels"))
    data->reaching_kernels.push_back(
        {row.Text("kernel"), row.Number("launches"), row.Number("bytes"), row.Number("most_bytes")});
  for (const JsonFields& row : all.Objects("phases"))
    data->phases.push_back({row.Text("name"), row.Number("from").value_or(0), row.Number("to").value_or(0),
                            row.Bool("guessed").value_or(false)});
}

void ReadPauses(const JsonFields& all, ReportData* data) {
  for (const JsonFields& row : all.Objects("pauses")) {
    for (const char* name : {"start_s", "leaving_s"}) {
      if (!row.Has(name)) row.Fail(row.Path(name), "absent", "a number");
    }
    data->pauses.push_back({row.Number("start_s").value_or(0), row.Number("leaving_s").value_or(0),
                            row.Number("seconds"), row.Text("by"), row.Text("region"),
                            row.Number("clean_bytes"), row.Number("host_bytes"), row.Number("disk_bytes"),
                            row.Number("dropped_bytes")});
  }
}

void ReadSmall(const JsonFields& all, ReportData* data) {
  if (const auto settings = all.Object("settings")) {
    for (const auto& [name, setting] : settings->Members())
      data->settings.push_back({name, setting.Text("value"), setting.Text("from")});
  }
  if (const auto active = all.Object("active")) data->active_share = active->Number("share");
  if (const auto power = all.Object("power"))
    data->power = {power->Number("gpu_joules"), power->Number("cpu_joules"), power->Text("source")};
  if (const auto dropped = all.Object("dropped")) {
    data->dropped_moves = dropped->Number("moves");
    data->dropped_stalls = dropped->Number("stalls");
  }
  data->advice = all.Text("advice");
  if (!absl::Base64Unescape(all.Text("iteration"), &data->iteration))
    all.Fail("iteration", "damaged", "the base64 of a trace file");
}

absl::StatusOr<nlohmann::json> Parse(const std::string& text) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& wrong) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "damaged or cut off at byte %d of %d; expected: a whole file as SPILLWAY_REPORT writes it",
        wrong.byte, text.size()));
  } catch (const nlohmann::json::out_of_range&) {
    return absl::InvalidArgumentError(
        "damaged: a number in it is too large; expected: a whole file as SPILLWAY_REPORT writes it");
  }
}

absl::Status CheckVersion(const nlohmann::json& json) {
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat)
    return absl::InvalidArgumentError(
        "no data of a run: \"format\" is not \"spillway-report\"; expected: a file as SPILLWAY_REPORT writes "
        "it");
  const nlohmann::json version = json.value("version", nlohmann::json());
  if (version.is_number_integer() && version == kVersion) return absl::OkStatus();
  const bool later = version.is_number_integer() && version > kVersion;
  return absl::InvalidArgumentError(absl::StrCat(
      "version ", version.is_number() ? version.dump() : "unknown", "; expected: ", kVersion,
      later ? ". It was written by a later version of Spillway: make the page with that version" : ""));
}

}  // namespace

absl::StatusOr<nlohmann::json> ReadReportJson(const std::string& text) {
  auto json = Parse(ValidUtf8(text));
  if (!json.ok()) return json;
  if (absl::Status status = CheckVersion(*json); !status.ok()) return status;
  return json;
}

absl::StatusOr<ReportData> ParseReport(const std::string& text) {
  const auto json = ReadReportJson(text);
  if (!json.ok()) return json.status();
  absl::Status status;
  const JsonFields all(*json, "", &status);
  ReportData data;
  if (const auto job = all.Object("job")) data.job = JobOf(*job);
  if (const auto capacity = all.Object("capacity")) data.capacity = CapacityOf(*capacity);
  if (const auto metrics = all.Object("figures"))
    data.metrics = MetricsOf(*metrics, data.job.device_index.value_or(0));
  if (const auto memory = all.Object("memory")) data.memory = MemoryOf(*memory);
  if (const auto transfers = all.Object("transfers")) data.transfers = TransfersOf(*transfers);
  if (const auto iterations = all.Object("iterations")) data.iterations = IterationsOf(*iterations);
  if (const auto moves = all.Object("moves")) data.moves = MovesOf(all, *moves);
  if (const auto stalls = all.Object("stalls")) data.stalls = StallsOf(all, *stalls);
  ReadTables(all, &data);
  ReadSmall(all, &data);
  ReadPauses(all, &data);
  if (!status.ok()) return status;
  return data;
}

}  // namespace spillway::integration
