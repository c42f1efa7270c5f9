// What the user set, read once at the start of the engine (or by `spillway run`, to refuse early) and then
// constant. settings.def is the list; this is its struct, with a field for each row, and the reading of it. A
// wrong value is an error for the job's start. Values come from a source: the preload's in the engine, which
// knows the variables and the keys of PyTorch's variable. Nothing below reads the environment.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_SETTINGS_H_
#define SPILLWAY_INTEGRATION_SETTINGS_SETTINGS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "integration/settings/setting_types.h"
#include "io/os/log.h"

namespace spillway::integration {

#define SETTING_WORDS(type, ...) enum class type : uint8_t { __VA_ARGS__ };
#include "integration/settings/settings.def"

struct Settings {
  // std::optional<Size> gpu_memory, bool checksum, ...: named as the rows, of their types, and as if nothing
  // was set.
#define SETTING(name, type, fallback, accepted, meaning) \
  setting_type::type::Value name = setting_type::Default<setting_type::type>(fallback, accepted);
#define MODE_SETTING(...) SETTING(__VA_ARGS__)
#include "integration/settings/settings.def"

  // No settings of ours, but from torchrun and its kin: this process among those of its node.
  int local_rank = 0;
  int local_world_size = 1;

  bool Enabled() const { return spillway != Mode::kOff; }
  bool Observes() const { return spillway == Mode::kObserve; }
  // This rank's spill directories; an empty list is no disk. None: not set, the default one is taken.
  std::optional<std::vector<DirectoryEntry>> OwnDirectories() const;
  // The paths of each rank's list: rank r has list r modulo their number. Empty: not set.
  std::vector<std::vector<std::string>> RankDirectories() const;
};

// Where settings come from: null functions are as if nothing was set.
struct SettingSource {
  std::function<const char*(const char* name)> value;      // null when not set
  std::function<const char*(const char* name)> described;  // "SPILLWAY_DIRS", for messages
  std::vector<std::string> variables;                      // names of all variables in the environment
};

// Reads everything, and the rank from the environment. The error is one sentence: name, value, what is
// accepted. Warnings (a name with our prefix that is none of ours) are appended to `warnings`.
absl::StatusOr<Settings> ReadSettings(const SettingSource& source, std::vector<std::string>* warnings);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_SETTINGS_H_
