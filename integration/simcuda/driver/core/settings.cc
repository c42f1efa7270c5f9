#include "integration/simcuda/driver/core/settings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/simcuda.h"

namespace simcuda {
namespace {

enum class Kind {
  kBytes,
  kBytesOrOff,
  kMicroseconds,
  kCount,
  kDevices,
  kGranularity,
  kCapability,
  kMode,
  kPoison,
  kEnd,
  kForm,
  kScale,
  kCopyBytes,
  kHandles,
  kHints,
  kSupport,
  kBooleanBytes,
  kKeys
};
enum class Changeable { kAlways, kBeforeInit };

struct Row {
  const char* name;
  Kind kind;
  Settings::Value* value;
  Settings::Value* also;  // second value set to the same, or null
  Changeable changeable;
};

constexpr const char* kPrefix = "SIMCUDA_";

const Row* Rows(size_t* count) {
  Settings& s = GetSettings();
  static const Row rows[] = {
      {"MEMORY", Kind::kBytes, &s.memory_bytes, nullptr, Changeable::kBeforeInit},
      {"DEVICES", Kind::kDevices, &s.devices, nullptr, Changeable::kBeforeInit},
      {"GRANULARITY", Kind::kGranularity, &s.granularity, nullptr, Changeable::kBeforeInit},
      {"DRIVER_VERSION", Kind::kCount, &s.driver_version, nullptr, Changeable::kBeforeInit},
      {"COMPUTE_CAPABILITY", Kind::kCapability, &s.compute_capability, nullptr, Changeable::kBeforeInit},
      {"MODE", Kind::kMode, &s.mode, nullptr, Changeable::kAlways},
      {"POISON", Kind::kPoison, &s.poison, nullptr, Changeable::kAlways},
      {"HANDLES", Kind::kHandles, &s.handles, nullptr, Changeable::kAlways},
      {"PROTECTION_KEYS", Kind::kKeys, &s.protection_keys, nullptr, Changeable::kBeforeInit},
      {"UNREGISTER", Kind::kForm, &s.unregister_waits, nullptr, Changeable::kAlways},
      {"MODULE_LOAD", Kind::kForm, &s.module_load_waits, nullptr, Changeable::kAlways},
      {"CODE_BYTES", Kind::kBytes, &s.code_bytes, nullptr, Changeable::kAlways},
      {"LOCAL_MEMORY", Kind::kBytes, &s.local_memory_bytes, nullptr, Changeable::kBeforeInit},
      {"LOCAL_MEMORY_LAUNCH", Kind::kCount, &s.local_memory_launch, nullptr, Changeable::kBeforeInit},
      {"SCRUB", Kind::kMicroseconds, &s.scrub_ns, nullptr, Changeable::kAlways},
      {"ADDRESS_HINTS", Kind::kHints, &s.address_hints, nullptr, Changeable::kAlways},
      {"HOST_HANDLES", Kind::kSupport, &s.host_handles, nullptr, Changeable::kAlways},
      {"BOOLEAN_BYTES", Kind::kBooleanBytes, &s.boolean_bytes, nullptr, Changeable::kAlways},
      {"COPY_BANDWIDTH", Kind::kBytesOrOff, &s.copy_bytes_per_s[SIMCUDA_HTOD],
       &s.copy_bytes_per_s[SIMCUDA_DTOH], Changeable::kAlways},
      {"COPY_BANDWIDTH_HTOD", Kind::kBytesOrOff, &s.copy_bytes_per_s[SIMCUDA_HTOD], nullptr,
       Changeable::kAlways},
      {"COPY_BANDWIDTH_DTOH", Kind::kBytesOrOff, &s.copy_bytes_per_s[SIMCUDA_DTOH], nullptr,
       Changeable::kAlways},
      {"COPY_LATENCY", Kind::kMicroseconds, &s.copy_latency_ns[SIMCUDA_HTOD],
       &s.copy_latency_ns[SIMCUDA_DTOH], Changeable::kAlways},
      {"COPY_LATENCY_HTOD", Kind::kMicroseconds, &s.copy_latency_ns[SIMCUDA_HTOD], nullptr,
       Changeable::kAlways},
      {"COPY_LATENCY_DTOH", Kind::kMicroseconds, &s.copy_latency_ns[SIMCUDA_DTOH], nullptr,
       Changeable::kAlways},
      {"KERNEL_TIME", Kind::kMicroseconds, &s.kernel_ns, nullptr, Changeable::kAlways},
      {"HARDWARE_END", Kind::kEnd, &s.hardware_high, nullptr, Changeable::kAlways},
      {"HARDWARE_FORM", Kind::kForm, &s.hardware_waits, nullptr, Changeable::kAlways},
      {"TIME_SCALE", Kind::kScale, &s.time_scale_thousandths, nullptr, Changeable::kAlways},
      {"COPY_BYTES", Kind::kCopyBytes, &s.copy_sample, nullptr, Changeable::kAlways},
      {"DELAY", Kind::kMicroseconds, &s.delay_max_ns, nullptr, Changeable::kAlways},
      {"SEED", Kind::kCount, &s.seed, nullptr, Changeable::kAlways},
      {"FAIL_CREATE", Kind::kCount, &s.fail_create, nullptr, Changeable::kAlways},
      {"FAIL_CREATE_EVERY", Kind::kCount, &s.fail_create_every, nullptr, Changeable::kAlways},
      {"FAIL_SET_ACCESS", Kind::kCount, &s.fail_set_access, nullptr, Changeable::kAlways},
      {"FAIL_SET_ACCESS_EVERY", Kind::kCount, &s.fail_set_access_every, nullptr, Changeable::kAlways},
      {"FAIL_COPY", Kind::kCount, &s.fail_copy, nullptr, Changeable::kAlways},
      {"FAIL_COPY_EVERY", Kind::kCount, &s.fail_copy_every, nullptr, Changeable::kAlways},
  };
  *count = sizeof(rows) / sizeof(rows[0]);
  return rows;
}

const char* Accepted(Kind kind) {
  switch (kind) {
    case Kind::kBytes: return "a size such as 2GiB or 500MB";
    case Kind::kBytesOrOff: return "bytes a second such as 4GB, or 0 for no limit";
    case Kind::kMicroseconds: return "microseconds, 0 or more";
    case Kind::kCount: return "a whole number, 0 or more";
    case Kind::kDevices: return "1 to 8";
    case Kind::kGranularity: return "a power of two from 64KiB to 1GiB";
    case Kind::kCapability: return "a number such as 9.0";
    case Kind::kMode: return "strict, report, fault or off";
    case Kind::kPoison: return "off, recycle or unmap";
    case Kind::kEnd: return "low or high";
    case Kind::kForm: return "pass or wait";
    case Kind::kScale: return "a number from 1 to 20";
    case Kind::kCopyBytes: return "all or sample";
    case Kind::kHandles: return "stop or answer";
    case Kind::kHints: return "take or ignore";
    case Kind::kSupport: return "on or off";
    case Kind::kBooleanBytes: return "1 or 4";
    case Kind::kKeys: return "off, on or try";
  }
  return "";
}

bool ParseCount(const std::string& text, int64_t* value) {
  char* end = nullptr;
  const long long parsed = std::strtoll(text.c_str(), &end, 10);
  *value = parsed;
  return !text.empty() && *end == '\0' && parsed >= 0;
}

bool ParseCapability(const std::string& text, int64_t* value) {
  const size_t point = text.find('.');
  int64_t major = 0, minor = 0;
  if (point == std::string::npos || !ParseCount(text.substr(0, point), &major) ||
      !ParseCount(text.substr(point + 1), &minor) || major > 99 || minor > 9)
    return false;
  *value = 10 * major + minor;
  return true;
}

bool ParseMicroseconds(const std::string& text, int64_t* nanoseconds) {
  char* end = nullptr;
  const double parsed = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(parsed >= 0) || parsed > 1e12) return false;
  *nanoseconds = std::llround(parsed * 1000);
  return true;
}

bool ParseScale(const std::string& text, int64_t* thousandths) {
  char* end = nullptr;
  const double parsed = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(parsed >= 1 && parsed <= 20)) return false;
  *thousandths = std::llround(parsed * 1000);
  return true;
}

bool ParseChoice(const std::string& text, std::initializer_list<const char*> choices, int64_t* value) {
  const auto found = std::find(choices.begin(), choices.end(), text);
  *value = found - choices.begin();
  return found != choices.end();
}

bool Parse(Kind kind, const std::string& text, int64_t* value) {
  switch (kind) {
    case Kind::kBytes: return ParseBytes(text, value);
    case Kind::kBytesOrOff: {
      const bool off = text == "0" || text == "off";
      if (off) *value = 0;
      return off || ParseBytes(text, value);
    }
    case Kind::kMicroseconds: return ParseMicroseconds(text, value);
    case Kind::kCount: return ParseCount(text, value);
    case Kind::kDevices: return ParseCount(text, value) && *value >= 1 && *value <= SIMCUDA_DEVICES_MAX;
    case Kind::kGranularity:
      return ParseBytes(text, value) && *value >= (64 << 10) && *value <= (1 << 30) &&
             (*value & (*value - 1)) == 0;
    case Kind::kCapability: return ParseCapability(text, value);
    case Kind::kMode: return ParseChoice(text, {"strict", "report", "off", "fault"}, value);
    case Kind::kPoison: return ParseChoice(text, {"off", "recycle", "unmap"}, value);
    case Kind::kEnd: return ParseChoice(text, {"low", "high"}, value);
    case Kind::kForm: return ParseChoice(text, {"pass", "wait"}, value);
    case Kind::kScale: return ParseScale(text, value);
    case Kind::kCopyBytes: return ParseChoice(text, {"all", "sample"}, value);
    case Kind::kHandles: return ParseChoice(text, {"stop", "answer"}, value);
    case Kind::kHints: return ParseChoice(text, {"ignore", "take"}, value);
    case Kind::kSupport: return ParseChoice(text, {"off", "on"}, value);
    case Kind::kBooleanBytes: return ParseCount(text, value) && (*value == 1 || *value == 4);
    case Kind::kKeys: return ParseChoice(text, {"off", "on", "try"}, value);
  }
  return false;
}

}  // namespace

Settings& GetSettings() {
  static Settings* settings = new Settings;  // never destroyed: stream threads outlive static destructors
  return *settings;
}

bool ParseBytes(const std::string& text, int64_t* bytes) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !(number > 0)) return false;
  static constexpr struct {
    const char* unit;
    double factor;
  } kUnits[] = {
      {"", 1},      {"B", 1},        {"KB", 1e3},        {"MB", 1e6},           {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}};
  for (const auto& [unit, factor] : kUnits) {
    if (std::strcmp(end, unit) != 0) continue;
    const double value = number * factor;
    if (value < 1 || value > 1e18) return false;
    *bytes = static_cast<int64_t>(value);
    return true;
  }
  return false;
}

SetResult SetByName(const std::string& name, const std::string& value, bool initialized) {
  Settings& settings = GetSettings();
  for (const auto& [file, path] : {std::pair{"LOG", &settings.log_file},
                                   {"STATS", &settings.stats_file},
                                   {"MACHINE", &settings.machine_file}}) {
    if (name != file) continue;
    if (initialized) return SetResult::kTooLate;
    *path = value;
    return SetResult::kOk;
  }
  if (name == "HARDWARE") {
    std::lock_guard<std::mutex> lock(settings.hardware_mutex);
    settings.hardware = value;
    return SetResult::kOk;
  }
  if (name == "FAIL") return SetFailures(value) ? SetResult::kOk : SetResult::kBadValue;
  size_t count = 0;
  const Row* rows = Rows(&count);
  for (size_t i = 0; i < count; ++i) {
    const Row& row = rows[i];
    if (name != row.name) continue;
    if (initialized && row.changeable == Changeable::kBeforeInit) return SetResult::kTooLate;
    int64_t parsed = 0;
    if (!Parse(row.kind, value, &parsed)) return SetResult::kBadValue;
    row.value->store(parsed);
    if (row.also != nullptr) row.also->store(parsed);
    return SetResult::kOk;
  }
  return SetResult::kUnknownName;
}

bool ReadEnvironment() {
  size_t count = 0;
  const Row* rows = Rows(&count);
  for (size_t i = 0; i < count; ++i) {
    const std::string variable = std::string(kPrefix) + rows[i].name;
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') continue;
    if (SetByName(rows[i].name, value, false) != SetResult::kOk) {
      std::fprintf(stderr, "simcuda: %s=%s is not understood: it takes %s\n", variable.c_str(), value,
                   Accepted(rows[i].kind));
      return false;
    }
  }
  const char* const failures = std::getenv("SIMCUDA_FAIL");
  if (failures != nullptr && !SetFailures(failures)) {
    std::fprintf(
        stderr,
        "simcuda: SIMCUDA_FAIL=%s is not understood: it takes rules such as cuMemMap:3, cuMemMap:3+ or "
        "cuMemMap:3:2, with commas between them\n",
        failures);
    return false;
  }
  for (const char* name : {"LOG", "STATS", "MACHINE", "HARDWARE"}) {
    const char* value = std::getenv((std::string(kPrefix) + name).c_str());
    if (value != nullptr) SetByName(name, value, false);
  }
  return true;
}

}  // namespace simcuda
