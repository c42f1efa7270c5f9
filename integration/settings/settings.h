// What the user set, read once and checked. The one table of settings is here: name, default, what is
// accepted, meaning. docs/environment.md is tested against it. Values come from the preload (variables, or keys of
// PyTorch's variable), so nothing below the engine reads the environment.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_SETTINGS_H_
#define SPILLWAY_INTEGRATION_SETTINGS_SETTINGS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "integration/settings/setting_values.h"
#include "io/os/log.h"

namespace spillway::integration {

enum class PolicyKind : uint8_t { kPlan, kLru };
enum class OnFull : uint8_t { kSpill, kError };
enum class Trust : uint8_t { kNormal, kStrict };
enum class StatusLine : uint8_t { kOff, kSignal };

struct Settings {
  bool enabled = true;              // SPILLWAY
  bool observe = false;             // SPILLWAY=observe: record and report, never evict
  std::optional<Size> gpu_memory;   // none: what is free at the first block, less a reserve
  std::optional<Size> host_memory;  // none: a quarter of what is available, shared by the node's ranks
  std::optional<std::vector<DirectoryEntry>>
      directories;  // this rank's; empty = no disk; none: the default one
  std::vector<std::vector<std::string>>
      rank_directories;              // paths of each list: rank r has list r modulo their number
  std::optional<Size> disk_reserve;  // none: max(5 %, 10 GiB) of each file system
  PolicyKind policy = PolicyKind::kPlan;
  bool checksum = true;
  OnFull on_full = OnFull::kSpill;
  Trust trust = Trust::kNormal;
  bool audit = false;
  std::string denylist_file;               // empty: none
  std::string metrics_file;                // empty: none
  std::string trace_file;                  // empty: none
  std::chrono::nanoseconds wait_limit{0};  // zero: for ever
  io::DiskModelOptions io_model;           // without limits: the disk as it is
  StatusLine status = StatusLine::kOff;
  os::LogLevel log_level = os::LogLevel::kWarn;
  int local_rank = 0;        // of torchrun and its kin
  int local_world_size = 1;  // ranks on this node
};

// One row of the table.
struct SettingRow {
  const char* name;      // without the prefix, in small letters; "spillway" for SPILLWAY itself
  const char* fallback;  // default, in words
  const char* accepted;  // what a value may be, in words
  const char* meaning;
  bool exists;  // false: known by name, but its feature is not there yet
};
std::span<const SettingRow> SettingTable();
// "SPILLWAY_GPU_MEMORY" for "gpu_memory".
std::string VariableOf(const std::string& name);

// Where settings come from: null functions are as if nothing was set.
struct SettingSource {
  std::function<const char*(const char* name)> value;      // null when not set
  std::function<const char*(const char* name)> described;  // "SPILLWAY_DIRS", for messages
  std::vector<std::string> variables;                      // names of all variables in the environment
};

// The process's environment as far as the engine reads it: names of variables, and the ranks of torchrun.
std::vector<std::string> EnvironmentNames();
std::string EnvironmentValue(const char* name);

// Reads everything. The error is one sentence: name, value, what is accepted. Warnings (a name with our prefix that
// is none of ours) are appended to `warnings`.
absl::StatusOr<Settings> ReadSettings(const SettingSource& source, std::vector<std::string>* warnings);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_SETTINGS_H_
