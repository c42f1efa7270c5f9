#include "integration/cli/doctor/given_settings.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "integration/cli/common/setting_options.h"
#include "integration/settings/environment.h"

namespace spillway::integration {
namespace {

// In the order in which the preload reads them: for a key in both, the later one counts.
constexpr const char* kConfVariables[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"};
// The whole text, in a child of a process from whose variables the preload has taken our keys.
constexpr char kOriginal[] = "SPILLWAY_ALLOC_CONF_ORIGINAL";

bool IsSetting(const std::string& name) {
  for (const SettingRow& row : SettingTable()) {
    if (name == row.name) return true;
  }
  return false;
}

struct Conf {
  const char* variable;
  std::map<std::string, std::string> entries;
};

bool NamesUs(const Conf& conf) {
  const auto backend = conf.entries.find("backend");
  return backend != conf.entries.end() && backend->second == "spillway";
}

// The texts that a job would take our keys from.
std::vector<Conf> ReadConfs() {
  std::vector<Conf> confs;
  bool ours = false;
  for (const char* const variable : kConfVariables) {
    const Conf& conf = confs.emplace_back(Conf{variable, ConfEntries(EnvironmentValue(variable))});
    ours |= NamesUs(conf);
    for (const auto& [key, value] : conf.entries) ours |= IsSetting(key);
  }
  if (!ours) confs = {Conf{kOriginal, ConfEntries(EnvironmentValue(kOriginal))}};
  return confs;
}

// What PyTorch's own entry looks like in its variable.
std::string EntryText(const std::string& key, const std::string& value) {
  const bool list = value.find_first_of(",:") != std::string::npos;
  return absl::StrCat(key, ":", list ? "[" : "", value, list ? "]" : "");
}

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

std::map<std::string, std::string> ConfEntries(const std::string& text) {
  std::map<std::string, std::string> entries;
  std::string entry;
  bool inside = false;  // commas in brackets do not separate
  const auto take = [&] {
    const size_t colon = entry.find(':');
    const std::string key = Trimmed(entry.substr(0, colon));
    std::string value = colon == std::string::npos ? "" : Trimmed(entry.substr(colon + 1));
    if (value.size() >= 2 && value.front() == '[' && value.back() == ']')
      value = value.substr(1, value.size() - 2);
    if (!key.empty()) entries[key] = value;
    entry.clear();
  };
  for (const char c : text) {
    if (c == '[') inside = true;
    if (c == ']') inside = false;
    if (c == ',' && !inside) {
      take();
    } else {
      entry += c;
    }
  }
  take();
  return entries;
}

GivenSettings CollectSettings(const std::map<std::string, std::string>& options) {
  GivenSettings given;
  for (const Conf& conf : ReadConfs()) {
    given.named_in_conf |= NamesUs(conf);
    for (const auto& [key, value] : conf.entries) {
      if (IsSetting(key)) {
        given.values[key] = value;
      } else if (key != "backend") {
        absl::StrAppend(&given.kept_conf, given.kept_conf.empty() ? "" : ",", EntryText(key, value));
      }
    }
  }
  for (const SettingRow& row : SettingTable()) {
    if (const char* const value = EnvironmentSetting(row.name)) given.values[row.name] = value;
  }
  for (const auto& [name, value] : options) given.values[name] = value;
  return given;
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
      for (const Conf& conf : ReadConfs()) {
        if (conf.entries.contains(name)) *described = absl::StrCat(name, " in ", conf.variable);
      }
    } else {
      *described = VariableOf(name);
    }
    return described->c_str();
  };
  source.variables = EnvironmentNames();
  return source;
}

}  // namespace spillway::integration
