// The user's settings: settings.def as a struct with a field for each row, as a table of texts, and the
// reading of values. The engine reads them once, when it opens; `spillway run` reads them the same way, to
// refuse early. The struct is constant after that. A wrong value is an error that stops the job at its start.
// Values come from a source. The engine's source is the preload, which knows the variables and the keys
// inside PyTorch's variables. Any thread may read the table. Modules below this one get values and never read
// the environment.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_SETTINGS_H_
#define SPILLWAY_INTEGRATION_SETTINGS_SETTINGS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "integration/settings/node_ranks.h"
#include "integration/settings/setting_types.h"
#include "io/os/log.h"
#include "io/os/log_file.h"

namespace spillway::integration {

#define SETTING_WORDS(type, ...) enum class type : uint8_t { __VA_ARGS__ };
#include "integration/settings/settings.def"

struct Settings {
  // The fields std::optional<Size> gpu_memory, bool checksum, ... have the names and types of the rows, and
  // the values of settings that are not set.
#define SETTING(name, type, fallback, accepted, meaning) \
  setting_type::type::Value name = setting_type::Default<setting_type::type>(fallback, accepted);
#define MODE_SETTING(...) SETTING(__VA_ARGS__)
#include "integration/settings/settings.def"

  // Limits of the operator that are applied once it is known what a share is of (setting_limits.h).
  std::optional<Size> most_gpu_memory, most_host_memory;

  NodeRanks ranks;  // no setting of ours: launchers report which of its node's processes this one is

  bool Enabled() const { return spillway != Mode::kOff; }
  bool Observes() const { return spillway == Mode::kObserve; }
  // Returns this rank's spill directories; an empty list is no disk. None: not set, the default one is taken.
  std::optional<std::vector<DirectoryEntry>> OwnDirectories() const;
  // Returns the paths of each rank's list: rank r has list r modulo their number. Empty: not set.
  std::vector<std::vector<std::string>> RankDirectories() const;
};

// The source of the settings. A null function counts as nothing set. (conf_files.h has the files.)
struct SettingSource {
  std::function<const char*(const char* name)> value;      // null if not set
  std::function<const char*(const char* name)> described;  // "SPILLWAY_DIRS", for messages
  std::vector<std::string> variables;                      // names of all variables in the environment
  VariableSource variable;                                 // launchers' variables; null: the environment's
  // The operator's limits; null if there is none.
  std::function<const char*(const char* name)> limit;            // "64GiB"
  std::function<const char*(const char* name)> limit_described;  // "/etc/spillway.conf:9: host_memory"
};

// Reads all settings, and the rank from the environment. Returns kInvalidArgument for the first value, or
// limit, that is not accepted: one sentence with the name, the value and what is accepted. Paths of files
// become absolute, since a job may leave the folder that it began in. Appends UnknownSettings() of the
// source's variables, ReadNodeRanks()' sentences, and one for each value that a limit lowers, to `warnings`.
absl::StatusOr<Settings> ReadSettings(const SettingSource& source, std::vector<std::string>* warnings);

// Returns `value` of the setting `name` for a process that may go to another folder: a relative path of a
// file becomes absolute. Any other value stays as it is.
std::string IndependentOfFolder(const std::string& name, const std::string& value);

// Returns a message like "SPILLWAY_POLICY=fifo is invalid; expected: plan or lru", with the name and the
// value of the source.
std::string NotAccepted(const SettingSource& source, const char* name, const std::string& accepted);

// A row of settings.def as text.
struct SettingRow {
  const char* name;      // without the prefix, in small letters; "spillway" for SPILLWAY itself
  const char* fallback;  // default
  const char* accepted;  // the accepted values
  const char* meaning;
};

// Returns all settings, in the order of settings.def. The command line's options come from it.
std::span<const SettingRow> SettingTable();

// Returns a sentence for each of `variables` that has our prefix and is none of ours. It gives the nearest
// name that exists.
std::vector<std::string> UnknownSettings(const std::vector<std::string>& variables);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_SETTINGS_H_
