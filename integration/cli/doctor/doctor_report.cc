#include "integration/cli/doctor/doctor_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "integration/cli/doctor/given_settings.h"
#include "nlohmann/json.hpp"

namespace spillway::integration {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

Json OrNull(uint64_t value) { return value == kUnlimited ? Json() : Json(value); }
// Returns null for 0, which means not known, or not limited.
Json AboveZero(auto value) { return value > 0 ? Json(value) : Json(); }
Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json RateJson(uint64_t bytes, double seconds, double rate) {
  return {{"bytes", bytes}, {"seconds", seconds}, {"bytes_per_second", rate}};
}

Json Of(const CopyRate& rate) { return RateJson(rate.bytes, rate.seconds, rate.PerSecond()); }

Json Of(const io::DirectionRate& rate) {
  Json json = RateJson(rate.bytes, rate.seconds, rate.PerSecond());
  json["late_bytes_per_second"] = rate.late_bytes_per_second;
  return json;
}

Json Of(const InstallationFacts& it) {
  return {{"version", SPILLWAY_VERSION_TEXT},
          {"directory", it.directory},
          {"missing", it.missing},
          {"engine_problem", OrNull(it.engine_problem)},
          {"pytorch_served", it.served}};
}

Json Of(const SystemFacts& it) {
  return {{"unserved", OrNull(it.unserved)},
          {"kernel", it.kernel},
          {"architecture", it.architecture},
          {"container", OrNull(it.container)},
          {"cpu", OrNull(it.cpu)},
          {"cpus", AboveZero(it.cpus)},
          {"cpu_quota", AboveZero(it.cpu_quota)},
          {"numa_nodes", AboveZero(it.numa_nodes)},
          {"memory_bytes", AboveZero(it.memory.machine_bytes)},
          {"group_memory_bytes", AboveZero(it.memory.group_bytes)},
          {"available_bytes", AboveZero(it.memory.available_bytes)}};
}

Json Of(const TorchFacts& it) {
  return {{"python", OrNull(it.python)}, {"problem", OrNull(it.problem)}, {"version", OrNull(it.version)},
          {"cuda", OrNull(it.cuda)},     {"package", OrNull(it.package)}, {"loads", it.loads}};
}

Json Of(const MeasuredLink& it) {
  Json json = {{"problem", OrNull(it.problem)}};
  if (!it.problem.empty()) return json;
  json["copy_bytes"] = it.buffer_bytes;
  json["in"] = Of(it.in);
  json["out"] = Of(it.out);
  json["both_in"] = Of(it.both_in);
  json["both_out"] = Of(it.both_out);
  return json;
}

Json Of(const DriverFacts& it) {
  Json json = {{"problem", OrNull(it.problem)},
               {"path", OrNull(it.path)},
               {"found_by_loader", it.problem.empty() ? Json(it.by_loader) : Json()},
               {"version", AboveZero(it.version)},
               {"stand_in", it.stand_in}};
  Json& devices = json["devices"] = Json::array();
  for (const DeviceFacts& device : it.devices) {
    devices.push_back(
        {{"problem", OrNull(device.problem)},
         {"name", device.name},
         {"bytes", AboveZero(device.bytes)},
         {"free_bytes", device.problem.empty() ? Json(device.free_bytes) : Json()},
         {"compute_capability", device.capability == 0 ? Json() : Json(device.capability / 10.0)},
         {"virtual_memory_management", device.maps},
         {"host_numa_memory", device.host_numa},
         {"numa_node", device.numa_node < 0 ? Json() : Json(device.numa_node)},
         {"link", Of(device.link)}});
  }
  return json;
}

Json Of(const LimitFacts& it) {
  return {{"locked_bytes", OrNull(it.locked_bytes)},
          {"open_files", OrNull(it.open_files)},
          {"file_bytes", OrNull(it.file_bytes)},
          {"address_bytes", OrNull(it.address_bytes)},
          {"io_uring_problem", OrNull(it.io_uring_problem)},
          {"membarrier", it.membarrier},
          {"memory_maps", AboveZero(it.memory_maps)},
          {"shared_memory_bytes", it.shared_memory},
          {"free_shared_memory_bytes", it.free_shared_memory}};
}

Json Of(const DiskFacts& it) {
  Json json = {
      {"path", it.start.path},
      {"problem", OrNull(it.start.problem)},
      {"file_system", OrNull(it.file_system)},
      {"dm_crypt",
       it.encryption == Encryption::kNotKnown ? Json() : Json(it.encryption == Encryption::kDmCrypt)},
      {"drive", OrNull(it.drive)},
      {"free_bytes", it.start.total_bytes == 0 ? Json() : Json(it.start.free_bytes)},
      {"total_bytes", AboveZero(it.start.total_bytes)},
      {"reserve_bytes", it.reserve_bytes},
      {"space_bytes", it.SpaceBytes()},
      {"direct_io", it.direct_io},
      {"cached_because", OrNull(it.cached_because)},
      {"io_uring", it.io_uring},
      {"rate_problem", OrNull(it.rate_problem)}};
  if (!it.rate_problem.empty()) return json;
  json["write"] = Of(it.rates.write);
  json["read"] = Of(it.rates.read);
  json["ended_by_space"] = it.rates.end == io::WriteEnd::kSpace;
  json["ended_by_limit"] = it.rates.end == io::WriteEnd::kLimit;
  return json;
}

Json Of(const Finding& it) {
  return {{"section", it.section},
          {"what", it.what},
          {"verdict", NameOf(it.verdict)},
          {"found", it.found},
          {"advice", OrNull(it.advice)}};
}

const char* MarkOf(Verdict verdict) {
  return verdict == Verdict::kGood ? "ok" : verdict == Verdict::kLimited ? "--" : "NO";
}

size_t WidestName(const std::vector<Finding>& findings) {
  size_t widest = 0;
  for (const Finding& finding : findings) widest = std::max(widest, finding.what.size());
  return widest;
}

}  // namespace

int ExitStatus(const DoctorReport& report) { return Worst(report.findings) == Verdict::kBad ? 1 : 0; }

std::string VerdictText(const DoctorReport& report) {
  std::vector<std::string> bad;
  int limits = 0;
  for (const Finding& finding : report.findings) {
    if (finding.verdict == Verdict::kBad) bad.push_back(finding.what);
    limits += finding.verdict == Verdict::kLimited ? 1 : 0;
  }
  if (!bad.empty()) return absl::StrCat("not usable: ", absl::StrJoin(bad, ", "));
  if (limits == 0) return "usable";
  return absl::StrCat("usable, with ", limits, limits == 1 ? " limit" : " limits", " (marked --)");
}

std::string ReportText(const DoctorReport& report) {
  std::string text = absl::StrCat("spillway ", SPILLWAY_VERSION_TEXT, "\n");
  const int width = static_cast<int>(WidestName(report.findings));
  std::string section;
  for (const Finding& finding : report.findings) {
    if (finding.section != section) absl::StrAppend(&text, "\n", finding.section, "\n");
    section = finding.section;
    absl::StrAppendFormat(&text, "  %-3s %-*s  %s\n", MarkOf(finding.verdict), width, finding.what,
                          finding.found);
    if (!finding.advice.empty())
      absl::StrAppendFormat(&text, "      %-*s  -> %s\n", width, "", finding.advice);
  }
  if (!report.facts.origins.empty()) {
    absl::StrAppend(&text, "\nSettings and their sources\n");
    for (const std::string& line : OriginLines(report.facts.origins))
      absl::StrAppend(&text, "  ", line, "\n");
  }
  if (!report.settings.empty()) {
    absl::StrAppend(&text, "\nSettings to copy\n");
    for (const std::string& line : ExportLines(report.settings)) absl::StrAppend(&text, "  ", line, "\n");
    absl::StrAppend(&text, "or all in PyTorch's variable\n  export PYTORCH_CUDA_ALLOC_CONF=",
                    ShellWord(ConfText(report.settings, report.facts.given.kept_conf)), "\n");
  }
  absl::StrAppend(&text, "\nThis machine is ", VerdictText(report), "\n");
  return text;
}

std::string ReportJson(const DoctorReport& report) {
  const DoctorFacts& facts = report.facts;
  Json json = {{"format", kFormat},
               {"verdict", NameOf(Worst(report.findings))},
               {"exit_status", ExitStatus(report)},
               {"installation", Of(facts.installation)},
               {"machine", Of(facts.system)},
               {"pytorch", Of(facts.torch)}};
  Json& origins = json["origins"] = Json::array();
  for (const SettingOrigin& it : facts.origins) {
    origins.push_back({{"name", it.name},
                       {"value", OrNull(it.value)},
                       {"source", OrNull(it.source)},
                       {"limit", OrNull(it.limit)},
                       {"limit_source", OrNull(it.limit_source)}});
  }
  if (!facts.installation_only) {
    json["driver"] = Of(facts.driver);
    json["limits"] = Of(facts.limits);
    Json& disks = json["directories"] = Json::array();
    for (const DiskFacts& disk : facts.disks) disks.push_back(Of(disk));
    json["ranks"] = {{"rank", facts.ranks.rank},
                     {"size", AboveZero(facts.ranks.size)},
                     {"launcher", OrNull(facts.ranks.launcher)}};
    json["start"] = {{"refusal", OrNull(facts.refusal)}, {"warnings", facts.warnings}};
    Json& settings = json["settings"] = Json::array();
    for (const ChosenSetting& it : report.settings) {
      settings.push_back(
          {{"name", it.name}, {"value", OrNull(it.value)}, {"given", it.given}, {"reason", it.reason}});
    }
    json["lines"] = ExportLines(report.settings);
    json["conf"] = ConfText(report.settings, facts.given.kept_conf);
  }
  Json& findings = json["findings"] = Json::array();
  for (const Finding& finding : report.findings) findings.push_back(Of(finding));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::integration
