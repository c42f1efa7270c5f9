// The settings as options of a subcommand: one for each row of settings.def. `spillway run` and `spillway
// doctor` take the same. One thread; no call fails, since values are judged later, by ReadSettings.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_SETTING_OPTIONS_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_SETTING_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace spillway::integration {

// Returns "--gpu-memory" for "gpu_memory"; the mode, whose variable is SPILLWAY itself, is "--mode".
std::string OptionOf(const std::string& name);

// Adds the options. Values come into `settings` by name, which must live until the command line has been
// parsed.
void AddSettingOptions(CLI::App* command, std::map<std::string, std::string>* settings);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_SETTING_OPTIONS_H_
