#include "integration/cli/common/setting_options.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

std::string OptionOf(const std::string& name) {
  return name == "spillway" ? "--mode" : absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
}

void AddSettingOptions(CLI::App* command, std::map<std::string, std::string>* settings) {
  for (const SettingRow& row : SettingTable()) {
    const std::string name = row.name;
    command->add_option_function<std::string>(
        OptionOf(name), [settings, name](const std::string& value) { (*settings)[name] = value; },
        absl::StrCat(row.meaning, " (", row.accepted, "; default: ", row.fallback, ")"));
  }
}

}  // namespace spillway::integration
