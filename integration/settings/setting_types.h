// The types of settings.def: the texts that a setting takes, and the value of its field. Each type has a
// `Value`, and Read(text, accepted), which returns the value or an error whose message lists the accepted
// values. `accepted` is that column of the row. A new type is one struct here. Only settings.h uses them, on
// any thread; the text alone decides.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_SETTING_TYPES_H_
#define SPILLWAY_INTEGRATION_SETTINGS_SETTING_TYPES_H_

#include <chrono>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "integration/settings/setting_values.h"
#include "io/engine/fault_engine.h"
#include "io/engine/model_engine.h"
#include "io/os/errno.h"

namespace spillway::integration::setting_type {

// Returns the words of a row's column, in its order: "plan", "lru" of "plan or lru"; "off", "error", "warn"
// of "off, error or warn".
std::vector<std::string> WordsOf(std::string_view accepted);

// One of the row's words, in any case. `Enum` has an enumerator for each, in the same order.
template <typename Enum>
struct Word {
  using Value = Enum;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view accepted) {
    SPILLWAY_ASSIGN_OR_RETURN(const size_t place, ParseWord(text, WordsOf(accepted)));
    return static_cast<Enum>(place);
  }
};

// A Word whose `on` and `off` may be written 1 and 0.
template <typename Enum>
struct SwitchOrWord {
  using Value = Enum;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view accepted) {
    const auto on = ParseSwitch(text);
    return Word<Enum>::Read(on.ok() ? (*on ? "on" : "off") : text, accepted);
  }
};

// "on" or "off", in the forms that ParseSwitch takes.
struct Switch {
  using Value = bool;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view) { return ParseSwitch(text); }
};

// A size in bytes: 0, or kMinSize at least. Empty: not set.
struct PlainSize {
  using Value = std::optional<Size>;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view);
};

// A size, or a share of something that is known later. Empty: not set.
struct Share {
  using Value = std::optional<Size>;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view);
};

// A share, or a size of at least 64 MiB; less is refused. Empty: not set.
struct ShareAboveZero {
  using Value = std::optional<Size>;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view);
};

// A list of directories for each rank of the node: rank r has list r modulo their number; an empty one is no
// disk. Empty: not set.
struct Directories {
  using Value = std::optional<std::vector<std::vector<DirectoryEntry>>>;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view);
};

// A path. "none", "off" and "0", in any case, are empty, like a setting that is not set; "on" and "1" are
// refused.
struct PathOrNone {
  using Value = std::string;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view accepted);
};

// A path, or empty for each text that PathOrNone takes for none. Unset is the default.
struct PathOrOff {
  using Value = std::optional<std::string>;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view accepted);
};

// A path that the preload has used before the engine reads settings, so any text is taken here.
struct UnjudgedPath {
  using Value = std::string;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view) { return std::string(text); }
};

// A time; "none" is zero.
struct Duration {
  using Value = std::chrono::nanoseconds;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view) { return ParseDuration(text); }
};

// Bytes for a time; "none" counts as not set, "0" as no bytes at all.
struct WriteLimitOrNone {
  using Value = std::optional<WriteLimit>;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view) { return ParseWriteLimit(text); }
};

// Rates and a latency; "none" means no limits.
struct ModelledDisk {
  using Value = io::DiskModels;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view) { return ParseDiskModels(text); }
};

// Faults of drives; "none" means no faults.
struct DriveFaults {
  using Value = std::vector<io::DriveFault>;
  static absl::StatusOr<Value> Read(std::string_view text, std::string_view) {
    return ParseDriveFaults(text);
  }
};

// Returns the value of a row's field if the user sets nothing: empty if `Type` has that, otherwise the value
// of `fallback`.
template <typename Type>
typename Type::Value Default(std::string_view fallback, std::string_view accepted) {
  using Value = typename Type::Value;
  if constexpr (std::same_as<Value, std::string> || requires(Value value) { value.reset(); }) {
    return Value();
  } else {
    return Type::Read(fallback, accepted).value();
  }
}

}  // namespace spillway::integration::setting_type

#endif  // SPILLWAY_INTEGRATION_SETTINGS_SETTING_TYPES_H_
