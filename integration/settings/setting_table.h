// settings.def as a table of words: for the command line's options, and to tell names that are ours from
// those that are not. Constant data; any thread.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_SETTING_TABLE_H_
#define SPILLWAY_INTEGRATION_SETTINGS_SETTING_TABLE_H_

#include <span>
#include <string>
#include <vector>

namespace spillway::integration {

// A row of settings.def.
struct SettingRow {
  const char* name;      // without the prefix, in small letters; "spillway" for SPILLWAY itself
  const char* fallback;  // default, in words
  const char* accepted;  // what a value may be, in words
  const char* meaning;
};

// All settings, in the order of settings.def; without the retired ones.
std::span<const SettingRow> SettingTable();

// "SPILLWAY_GPU_MEMORY" for "gpu_memory", "SPILLWAY" for "spillway".
std::string VariableOf(const std::string& name);

// A sentence, with the nearest name that exists, for each of `variables` that has our prefix and is none of
// ours.
std::vector<std::string> UnknownSettings(const std::vector<std::string>& variables);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_SETTING_TABLE_H_
