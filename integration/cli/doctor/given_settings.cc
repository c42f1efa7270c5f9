#include "integration/cli/doctor/given_settings.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "integration/cli/common/setting_options.h"
#include "integration/preload/conf_text.h"
#include "integration/settings/environment.h"

namespace spillway::integration {
namespace {

// The variables in the order in which the preload reads them: the later one counts for a key in both.
constexpr const char* kConfVariables[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"};
// Has the whole text in a child of a process from whose variables the preload has taken our keys.
constexpr char kOriginal[] = "SPILLWAY_ALLOC_CONF_ORIGINAL";

struct Conf {
  const char* variable = "";
  bool names_us = false;                      // backend:spillway
  bool ours = false;                          // it has an entry of ours
  std::map<std::string, std::string> values;  // of our keys, without brackets
  std::vector<std::string> kept;  // entries of PyTorch's own, as they stand there, except its backend
};

std::string SpanText(const Span& span) { return std::string(span.start, span.bytes); }

Conf ReadConf(const char* variable) {
  Conf conf;
  conf.variable = variable;
  const std::string text = EnvironmentValue(variable);
  const char* rest = text.c_str();
  ConfEntry entry = {};
  while (NextConfEntry(&rest, &entry) != 0) {
    const std::string key = SpanText(entry.key);
    const bool backend = key == "backend";
    conf.ours |= entry.ours >= 0;
    if (backend) {
      conf.names_us |= entry.ours >= 0;
    } else if (entry.ours >= 0) {
      const std::string value = SpanText(entry.value);
      conf.values[key] = entry.bracketed != 0 ? value.substr(1, value.size() - 2) : value;
    } else if (!key.empty()) {
      conf.kept.push_back(SpanText(entry.whole));
    }
  }
  return conf;
}

// Returns the texts that a job would take our keys from.
std::vector<Conf> ReadConfs() {
  std::vector<Conf> confs;
  for (const char* const variable : kConfVariables) confs.push_back(ReadConf(variable));
  const bool ours = std::any_of(confs.begin(), confs.end(), [](const Conf& conf) { return conf.ours; });
  if (!ours) confs = {ReadConf(kOriginal)};
  return confs;
}

bool SwitchedOff(const GivenSettings& given) {
  const auto mode = given.values.find("spillway");
  return mode != given.values.end() && (absl::EqualsIgnoreCase(mode->second, "off") || mode->second == "0");
}

}  // namespace

GivenSettings CollectSettings(const std::map<std::string, std::string>& options) {
  GivenSettings given;
  given.files = std::make_shared<const ConfFiles>(ConfFiles::PathsOfProcess());
  for (const SettingRow& row : SettingTable()) {
    if (const char* const value = given.files->Value(row.name)) given.values[row.name] = value;
  }
  for (const Conf& conf : ReadConfs()) {
    given.named_in_conf |= conf.names_us;
    for (const auto& [key, value] : conf.values) given.values[key] = value;
    for (const std::string& entry : conf.kept)
      absl::StrAppend(&given.kept_conf, given.kept_conf.empty() ? "" : ",", entry);
  }
  for (const SettingRow& row : SettingTable()) {
    if (const char* const value = EnvironmentSetting(row.name)) given.values[row.name] = value;
  }
  for (const auto& [name, value] : options) given.values[name] = value;
  return given;
}

absl::Status CheckConf(const GivenSettings& given) {
  if (SwitchedOff(given)) return absl::OkStatus();
  bool beside_ours = false;
  for (const char* const variable : kConfVariables)
    beside_ours |= NamesOurBackend(EnvironmentValue(variable).c_str()) != 0;
  for (const char* const variable : kConfVariables) {
    char words[768];
    const std::string text = EnvironmentValue(variable);
    if (FindConfSlip(text.c_str(), variable, beside_ours ? 1 : 0, words, sizeof(words)) != 0)
      return absl::InvalidArgumentError(words);
  }
  return given.files ? given.files->status() : absl::OkStatus();
}

SettingSource SourceOf(const GivenSettings& given, const std::map<std::string, std::string>& options) {
  SettingSource source;
  source.value = [&given](const char* name) -> const char* {
    const auto found = given.values.find(name);
    return found != given.values.end() ? found->second.c_str() : EnvironmentSetting(name);
  };
  const auto described = std::make_shared<std::string>();
  source.described = [&given, &options, described](const char* name) {
    if (options.contains(name)) {
      *described = OptionOf(name);
    } else if (given.values.contains(name) && EnvironmentSetting(name) == nullptr) {
      if (given.files && given.files->Source(name) != nullptr) *described = given.files->Source(name);
      for (const Conf& conf : ReadConfs()) {
        if (conf.values.contains(name)) *described = absl::StrCat(name, " in ", conf.variable);
      }
    } else {
      *described = VariableOf(name);
    }
    return described->c_str();
  };
  source.variables = EnvironmentNames();
  if (given.files) given.files->AddLimitsTo(&source);
  return source;
}

std::vector<SettingOrigin> OriginsOf(const SettingSource& source) {
  std::vector<SettingOrigin> origins;
  for (const SettingRow& row : SettingTable()) {
    SettingOrigin origin;
    origin.name = row.name;
    if (const char* const value = source.value(row.name)) {
      origin.value = value;
      origin.source = source.described(row.name);
    }
    if (const char* const limit = source.limit ? source.limit(row.name) : nullptr) {
      origin.limit = limit;
      origin.limit_source = source.limit_described(row.name);
    }
    if (!origin.value.empty() || !origin.limit.empty()) origins.push_back(std::move(origin));
  }
  return origins;
}

std::vector<std::string> OriginLines(const std::vector<SettingOrigin>& origins) {
  std::vector<std::string> lines;
  for (const SettingOrigin& it : origins) {
    std::string line = it.name;
    if (!it.value.empty()) absl::StrAppend(&line, "=", it.value, " by ", it.source);
    if (!it.limit.empty())
      absl::StrAppend(&line, it.value.empty() ? " at most " : "; at most ", it.limit, " by ",
                      it.limit_source);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace spillway::integration
