#include "integration/settings/settings.h"

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "integration/settings/environment.h"
#include "integration/settings/name_distance.h"
#include "integration/settings/setting_limits.h"

namespace spillway::integration {
namespace {

constexpr SettingRow kTable[] = {
#define SETTING(name, type, fallback, accepted, meaning) {#name, fallback, accepted, meaning},
#define MODE_SETTING(...) SETTING(__VA_ARGS__)
#include "integration/settings/settings.def"
};

template <typename Type>
constexpr bool kNamesAFile =
    std::same_as<Type, setting_type::PathOrNone> || std::same_as<Type, setting_type::PathOrOff>;

// The names of settings that name a file.
constexpr std::string_view kFiles[] = {
#define SETTING(name, type, ...) \
  kNamesAFile<setting_type::type> ? std::string_view(#name) : std::string_view(),
#include "integration/settings/settings.def"
};

// Returns the path as it is if the working directory is gone.
std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

// Variables with our prefix that other parts of the product read or set.
constexpr std::string_view kOtherVariables[] = {"SPILLWAY_ALLOC_CONF_ORIGINAL", "SPILLWAY_CONF",
                                                "SPILLWAY_LIBRARY_DIR", "SPILLWAY_BUILD_LIB",
                                                "SPILLWAY_PYTHON"};

size_t Distance(const std::string& a, const std::string& b) {
  return NameDistance(a.data(), a.size(), b.c_str());
}

bool IsOurs(const std::string& variable) {
  return std::any_of(std::begin(kTable), std::end(kTable),
                     [&](const auto& row) { return VariableOf(row.name) == variable; }) ||
         std::find(std::begin(kOtherVariables), std::end(kOtherVariables), variable) !=
             std::end(kOtherVariables);
}

std::string NearestTo(const std::string& variable) {
  std::string nearest;
  for (const SettingRow& row : kTable) {
    const std::string name = VariableOf(row.name);
    if (nearest.empty() || Distance(variable, name) < Distance(variable, nearest)) nearest = name;
  }
  return nearest;
}

// Returns a text like "/etc/spillway.conf:9: host_memory=64GiB".
std::string LimitOf(const SettingSource& source, const char* name) {
  return absl::StrCat(source.limit_described ? source.limit_described(name) : name, "=", source.limit(name));
}

// Reads values by name. The first wrong one is kept, with everything that a message needs.
class Reader {
 public:
  explicit Reader(const SettingSource& source) : source_(source) {}

  // Reads the setting `name`, if it is set, into `target`.
  template <typename Type>
  void Read(const char* name, std::string_view accepted, typename Type::Value* target) {
    const char* text = Value(name);
    if (text == nullptr || !status_.ok()) return;
    auto result = Type::Read(text, accepted);
    if (!result.ok()) {
      Refuse(name, std::string(result.status().message()));
      return;
    }
    *target = *std::move(result);
    if constexpr (std::same_as<Type, setting_type::PathOrOff>) {
      if (!(*target)->empty()) *target = Absolute(**target);
    } else if constexpr (kNamesAFile<Type>) {
      if (!target->empty()) *target = Absolute(*target);
    }
  }

  // Reads the limit of the setting `name`, if there is one, into `target`.
  template <typename Type>
  void ReadLimit(const char* name, std::string_view accepted, typename Type::Value* target) {
    const char* const text = source_.limit ? source_.limit(name) : nullptr;
    if (text == nullptr || !status_.ok()) return;
    auto result = Type::Read(text, accepted);
    if (result.ok())
      *target = *std::move(result);
    else
      status_ = absl::InvalidArgumentError(
          absl::StrCat(LimitOf(source_, name), " is invalid; expected: ", result.status().message()));
  }

  const absl::Status& status() const { return status_; }

 private:
  const char* Value(const char* name) const { return source_.value ? source_.value(name) : nullptr; }

  void Refuse(const char* name, const std::string& accepted) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(NotAccepted(source_, name, accepted));
  }

  const SettingSource& source_;
  absl::Status status_;
};

// Puts a limit in the place of a setting that is above it, with a sentence.
void ApplyLimits(const SettingSource& source, const std::optional<WriteLimit>& writes, Settings* settings,
                 std::vector<std::string>* warnings) {
  const auto take = [&](const char* name, const auto& limited, auto* setting) {
    if (*setting && **setting != *limited)
      warnings->push_back(absl::StrCat(source.described ? source.described(name) : name, "=",
                                       source.value(name),
                                       " is lowered by a limit: ", LimitOf(source, name)));
    *setting = limited;
  };
  if (settings->gpu_memory)
    take("gpu_memory", std::optional(LimitedSize(*settings->gpu_memory, settings->most_gpu_memory)),
         &settings->gpu_memory);
  if (settings->host_memory)
    take("host_memory", std::optional(LimitedSize(*settings->host_memory, settings->most_host_memory)),
         &settings->host_memory);
  if (writes) take("write_budget", LimitedWrites(settings->write_budget, writes), &settings->write_budget);
}

}  // namespace

std::optional<std::vector<DirectoryEntry>> Settings::OwnDirectories() const {
  if (!dirs) return std::nullopt;
  return (*dirs)[static_cast<size_t>(ranks.rank) % dirs->size()];
}

std::vector<std::vector<std::string>> Settings::RankDirectories() const {
  std::vector<std::vector<std::string>> lists;
  if (!dirs) return lists;
  for (const std::vector<DirectoryEntry>& rank : *dirs) {
    std::vector<std::string>& paths = lists.emplace_back();
    for (const DirectoryEntry& entry : rank) paths.push_back(entry.path);
  }
  return lists;
}

absl::StatusOr<Settings> ReadSettings(const SettingSource& source, std::vector<std::string>* warnings) {
  Settings settings;
  Reader reader(source);
#define SETTING(name, type, fallback, accepted, meaning) \
  reader.Read<setting_type::type>(#name, accepted, &settings.name);
#define MODE_SETTING(...) SETTING(__VA_ARGS__)
#include "integration/settings/settings.def"
  std::optional<WriteLimit> writes;
  reader.ReadLimit<setting_type::ShareAboveZero>("gpu_memory", "", &settings.most_gpu_memory);
  reader.ReadLimit<setting_type::Share>("host_memory", "", &settings.most_host_memory);
  reader.ReadLimit<setting_type::WriteLimitOrNone>("write_budget", "", &writes);
  if (!reader.status().ok()) return reader.status();
  ApplyLimits(source, writes, &settings, warnings);
  const VariableSource variables = source.variable ? source.variable : VariableSource(EnvironmentVariable);
  settings.ranks = ReadNodeRanks(variables, warnings);
  for (std::string& sentence : UnknownSettings(source.variables)) warnings->push_back(std::move(sentence));
  return settings;
}

std::string IndependentOfFolder(const std::string& name, const std::string& value) {
  if (std::find(std::begin(kFiles), std::end(kFiles), name) == std::end(kFiles)) return value;
  const auto path = setting_type::PathOrNone::Read(value, "");
  return path.ok() && !path->empty() ? Absolute(*path) : value;
}

std::string NotAccepted(const SettingSource& source, const char* name, const std::string& accepted) {
  const char* const described = source.described ? source.described(name) : nullptr;
  const char* const value = source.value ? source.value(name) : nullptr;
  return absl::StrCat(described != nullptr ? described : VariableOf(name), value == nullptr ? "" : "=",
                      value == nullptr ? "" : value, " is invalid; expected: ", accepted);
}

std::span<const SettingRow> SettingTable() { return kTable; }

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
