#include "integration/settings/environment.h"

#include <cstdlib>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

extern char** environ;  // NOLINT: declared by no header in strict C++ modes

namespace spillway::integration {

std::vector<std::string> EnvironmentNames() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

char** WholeEnvironment() { return environ; }

const char* EnvironmentVariable(const char* name) { return std::getenv(name); }

std::string EnvironmentValue(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string UserCacheFile(const std::string& name) {
  std::string cache = EnvironmentValue("XDG_CACHE_HOME");
  if (cache.empty() || cache.front() != '/') {
    const std::string home = EnvironmentValue("HOME");
    if (home.empty() || home.front() != '/') return "";
    cache = home + "/.cache";
  }
  return absl::StrCat(cache, "/spillway/", name);
}

std::string VariableOf(const std::string& name) {
  constexpr char kPrefix[] = "SPILLWAY";
  return name == "spillway" ? kPrefix : absl::StrCat(kPrefix, "_", absl::AsciiStrToUpper(name));
}

const char* EnvironmentSetting(const char* name) {
  const char* const value = std::getenv(VariableOf(name).c_str());
  return value == nullptr || *value == '\0' ? nullptr : value;
}

}  // namespace spillway::integration
