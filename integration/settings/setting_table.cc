#include "integration/settings/setting_table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace spillway::integration {
namespace {

constexpr SettingRow kTable[] = {
#define SETTING(name, type, fallback, accepted, meaning) {#name, fallback, accepted, meaning},
#define MODE_SETTING(...) SETTING(__VA_ARGS__)
#include "integration/settings/settings.def"
};

constexpr const char* kRetired[] = {
#define RETIRED_SETTING(name, fallback) #name,
#include "integration/settings/settings.def"
};

// Variables with our prefix that others of our parts read or set.
constexpr std::string_view kOtherVariables[] = {"SPILLWAY_ALLOC_CONF_ORIGINAL", "SPILLWAY_LIBRARY_DIR",
                                                "SPILLWAY_BUILD_LIB", "SPILLWAY_PYTHON"};

constexpr char kPrefix[] = "SPILLWAY";

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

bool IsOurs(const std::string& variable) {
  const auto names_it = [&](const char* name) { return VariableOf(name) == variable; };
  return std::any_of(std::begin(kTable), std::end(kTable),
                     [&](const auto& row) { return names_it(row.name); }) ||
         std::any_of(std::begin(kRetired), std::end(kRetired), names_it) ||
         std::find(std::begin(kOtherVariables), std::end(kOtherVariables), variable) !=
             std::end(kOtherVariables);
}

std::string NearestTo(const std::string& variable) {
  std::string nearest;
  for (const SettingRow& row : kTable) {
    const std::string name = VariableOf(row.name);
    if (nearest.empty() || EditDistance(variable, name) < EditDistance(variable, nearest)) nearest = name;
  }
  return nearest;
}

}  // namespace

std::span<const SettingRow> SettingTable() { return kTable; }

std::string VariableOf(const std::string& name) {
  return name == "spillway" ? kPrefix : absl::StrCat(kPrefix, "_", absl::AsciiStrToUpper(name));
}

std::vector<std::string> UnknownSettings(const std::vector<std::string>& variables) {
  std::vector<std::string> sentences;
  for (const std::string& variable : variables) {
    if (!variable.starts_with("SPILLWAY_") || IsOurs(variable)) continue;
    sentences.push_back(
        absl::StrCat(variable, " is unknown and ignored; the nearest name is ", NearestTo(variable)));
  }
  return sentences;
}

}  // namespace spillway::integration
