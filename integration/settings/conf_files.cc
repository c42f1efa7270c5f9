#include "integration/settings/conf_files.h"

#include <array>
#include <climits>

#include "integration/settings/environment.h"

namespace spillway::integration {
namespace {

enum Kind : int { kSetting = 0, kLimit = 1 };

}  // namespace

ConfFiles::Paths ConfFiles::PathsOfProcess() {
  Paths paths;
  paths.system = SPILLWAY_SYSTEM_CONF;
  std::array<char, PATH_MAX> path = {};
  if (UserConfPath(EnvironmentVariable("SPILLWAY_CONF"), EnvironmentVariable("XDG_CONFIG_HOME"),
                   EnvironmentVariable("HOME"), path.data(), path.size(), &paths.user_kind) != 0)
    paths.user = path.data();
  return paths;
}

ConfFiles::ConfFiles(const Paths& paths) {
  if (!paths.system.empty()) ReadConfFile(paths.system.c_str(), kConfOfSystem, &system_);
  if (!paths.user.empty()) ReadConfFile(paths.user.c_str(), paths.user_kind, &user_);
}

ConfFiles::~ConfFiles() {
  CloseConfFile(&user_);
  CloseConfFile(&system_);
}

absl::Status ConfFiles::status() const {
  for (const ConfFile* const file : {&system_, &user_}) {
    if (file->problem[0] != '\0') return absl::InvalidArgumentError(file->problem);
  }
  return absl::OkStatus();
}

const ConfFileEntry* ConfFiles::Find(const char* name) const {
  const ConfFileEntry* const entry = FindConfFileEntry(&user_, name, kSetting);
  return entry != nullptr ? entry : FindConfFileEntry(&system_, name, kSetting);
}

const char* ConfFiles::Value(const char* name) const {
  const ConfFileEntry* const entry = Find(name);
  return entry == nullptr ? nullptr : entry->value;
}

const char* ConfFiles::Source(const char* name) const {
  const ConfFileEntry* const entry = Find(name);
  return entry == nullptr ? nullptr : entry->source;
}

void ConfFiles::AddLimitsTo(SettingSource* source) const {
  source->limit = [this](const char* name) -> const char* {
    const ConfFileEntry* const entry = FindConfFileEntry(&system_, name, kLimit);
    return entry == nullptr ? nullptr : entry->value;
  };
  source->limit_described = [this](const char* name) -> const char* {
    const ConfFileEntry* const entry = FindConfFileEntry(&system_, name, kLimit);
    return entry == nullptr ? nullptr : entry->source;
  };
}

}  // namespace spillway::integration
