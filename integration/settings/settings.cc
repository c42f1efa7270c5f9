#include "integration/settings/settings.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "integration/settings/environment.h"
#include "integration/settings/setting_table.h"

namespace spillway::integration {
namespace {

// Values come by name; the first wrong one is kept, with everything that a message needs.
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
      Refuse(name, text, std::string(result.status().message()));
      return;
    }
    *target = *std::move(result);
  }

  // A setting without a feature may say that it is not wanted.
  void ReadRetired(const char* name, const char* fallback) {
    const char* text = Value(name);
    if (text == nullptr) return;
    const std::string value = absl::AsciiStrToLower(text);
    for (const std::string_view harmless : {"", "off", "0", "none", "normal"}) {
      if (value == harmless) return;
    }
    Refuse(name, text, absl::StrCat(fallback, " only, since it is not available in this version"));
  }

  const absl::Status& status() const { return status_; }

 private:
  const char* Value(const char* name) const { return source_.value ? source_.value(name) : nullptr; }

  void Refuse(const char* name, const std::string& text, const std::string& accepted) {
    if (!status_.ok()) return;
    const char* described = source_.described ? source_.described(name) : nullptr;
    status_ = absl::InvalidArgumentError(absl::StrCat(described != nullptr ? described : VariableOf(name),
                                                      "=", text, " is not accepted; accepted: ", accepted));
  }

  const SettingSource& source_;
  absl::Status status_;
};

// Far more than a node has: ranks are looked at one by one.
constexpr int kMostRanks = 4096;

void ReadRanks(Settings* settings) {
  int number = 0;
  if (absl::SimpleAtoi(EnvironmentValue("LOCAL_RANK"), &number) && number >= 0) settings->local_rank = number;
  if (absl::SimpleAtoi(EnvironmentValue("LOCAL_WORLD_SIZE"), &number) && number >= 1) {
    settings->local_world_size = std::min(number, kMostRanks);
  }
}

}  // namespace

std::optional<std::vector<DirectoryEntry>> Settings::OwnDirectories() const {
  if (!dirs) return std::nullopt;
  return (*dirs)[static_cast<size_t>(local_rank) % dirs->size()];
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
#define RETIRED_SETTING(name, fallback) reader.ReadRetired(#name, fallback);
#include "integration/settings/settings.def"
#define SETTING(name, type, fallback, accepted, meaning) \
  reader.Read<setting_type::type>(#name, accepted, &settings.name);
#define MODE_SETTING(...) SETTING(__VA_ARGS__)
#include "integration/settings/settings.def"
  if (!reader.status().ok()) return reader.status();
  ReadRanks(&settings);
  for (std::string& sentence : UnknownSettings(source.variables)) warnings->push_back(std::move(sentence));
  return settings;
}

}  // namespace spillway::integration
