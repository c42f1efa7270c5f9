#include "integration/settings/settings.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "io/os/errno.h"

extern char** environ;  // NOLINT: declared by no header in strict C++ modes

namespace spillway::integration {
namespace {

constexpr SettingRow kTable[] = {
    {"spillway", "on", "on, off or observe",
     "`off`: do nothing, as if Spillway were not loaded. `observe`: record, never evict; the summary says "
     "what "
     "smaller budgets would move each step",
     true},
    {"gpu_memory", "what is free at the first block, less 3 % (at least 32 MiB, at most 1 GiB)",
     "a size or a share above 0", "Budget per device. A share is of the device's total memory", true},
    {"host_memory", "a quarter of what is available (control group too), shared by the ranks of the node",
     "a size or a share",
     "Cap of the pinned host tier of the node, staging included: its ranks have equal parts, the devices of "
     "a process "
     "one pool. 0: no host tier, and 48 MiB of staging for the disk tier. A share is of the available "
     "memory",
     true},
    {"dirs", "the first of /var/tmp, TMPDIR, /tmp that is no tmpfs", "directories `a,b:2TiB`, or none",
     "Spill directories, each with a cap after a colon if wanted; after `;` those of the second rank of the "
     "node. Ranks that name the same directory have equal parts of its cap. `none`: no disk",
     true},
    {"disk_reserve", "max(5 %, 10 GiB)", "a size", "Space left free in the file system of each directory",
     true},
    {"policy", "plan", "plan or lru",
     "`plan`: by the predicted next use where steps repeat; `lru`: least recently used, always", true},
    {"checksum", "on", "on, off, 1 or 0", "Checksums of what is written to disk, verified on the way back",
     true},
    {"on_full", "spill", "spill or error",
     "`error`: PyTorch's out-of-memory error as without Spillway; nothing is evicted, only caching is ours",
     true},
    {"metrics", "none", "a path",
     "File of figures in JSON, written every 10 s and at the end; in the path `%p` is "
     "the process number, `%r` the rank on the node",
     true},
    {"status", "off", "off or signal",
     "`signal`: SIGUSR1 makes the process write one line of figures to standard error; a handler of the "
     "job's "
     "own is left alone",
     true},
    {"log", "warn", "off, error, warn, info or debug", "What is written to standard error", true},
    {"cuda_driver", "as ld.so finds it", "a path", "The real driver, `libcuda.so.1`", true},
    {"wait_limit", "none", "a time such as 30s or 5min, or none",
     "A wait of the job's that takes longer ends with a refusal that names it (what was waited for, on whom, "
     "for how long): CUDA_ERROR_TIMEOUT with these words. `none`: for ever; lines after 10 s, 60 s and then "
     "every 5 minutes say so",
     true},
    {"write_budget", "none", "a size", "Bytes a day that may be written to disk", false},
    {"encrypt", "off", "on, off, 1 or 0", "Encryption of what is written to disk", false},
    {"gds", "off", "on, off, 1 or 0", "GPUDirect Storage", false},
    {"trust", "normal", "normal or strict",
     "`strict`: a block may leave the GPU only where every kernel that named it has run before, none found "
     "its address in a large struct, and no table ever named it (docs/hidden-pointers.md)",
     true},
    {"trace", "none", "a path, or none",
     "File that gets the job's step at the end, with times measured on the GPU, for `spillway simulate "
     "--trace`; in the path `%p` and `%r` as for SPILLWAY_METRICS. Of several devices of a process, the "
     "second and later ones' files end in `.gpuN`",
     true},
    {"audit", "off", "on, off, 1 or 0",
     "`on`: launches run one at a time with nothing mapped that they do not name, so that the first kernel "
     "that reaches further is found (docs/audit.md). Slow",
     true},
    {"denylist", "none", "a path, or none",
     "File of kernels that reach memory which their parameters do not name: everything is on the GPU when "
     "one is launched. In audit mode what is found is added to it",
     true},
    {"io_model", "none",
     "none, or rates and a latency as in `read:1.2e9,write:1.2e9,latency:80us`, or a part of it",
     "For trials: each spill directory is at most that fast (bytes a second in each direction, and a time "
     "added to each request)",
     true},
    {"io_faults", "none", "-", "For tests: injected faults", false},
};

// Variables with our prefix that others of our parts read or set.
constexpr std::string_view kOtherVariables[] = {"SPILLWAY_ALLOC_CONF_ORIGINAL", "SPILLWAY_LIBRARY_DIR",
                                                "SPILLWAY_BUILD_LIB", "SPILLWAY_PYTHON"};

constexpr std::string_view kPrefix = "SPILLWAY";

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

bool IsOurs(const std::string& variable) {
  for (const SettingRow& row : kTable) {
    if (VariableOf(row.name) == variable) return true;
  }
  return std::find(std::begin(kOtherVariables), std::end(kOtherVariables), variable) !=
         std::end(kOtherVariables);
}

void WarnOfUnknown(const std::vector<std::string>& variables, std::vector<std::string>* warnings) {
  for (const std::string& variable : variables) {
    if (!variable.starts_with("SPILLWAY_") || IsOurs(variable)) continue;
    std::string nearest;
    for (const SettingRow& row : kTable) {
      const std::string name = VariableOf(row.name);
      if (row.exists && (nearest.empty() || EditDistance(variable, name) < EditDistance(variable, nearest))) {
        nearest = name;
      }
    }
    warnings->push_back(absl::StrCat(variable, " is unknown and ignored; the nearest name is ", nearest));
  }
}

// Values come by name; the first wrong one is kept, with everything that a message needs.
class Reader {
 public:
  explicit Reader(const SettingSource& source) : source_(source) {}

  // Calls parse(text) when `name` is set and puts the result into `target`.
  template <typename T, typename Parse>
  void Read(const char* name, T* target, Parse parse) {
    const char* text = Value(name);
    if (text == nullptr || !status_.ok()) return;
    auto result = parse(std::string_view(text));
    if (!result.ok()) {
      Refuse(name, text, std::string(result.status().message()));
      return;
    }
    *target = *std::move(result);
  }

  void Refuse(const char* name, const std::string& text, const std::string& accepted) {
    if (!status_.ok()) return;
    const char* described = source_.described ? source_.described(name) : nullptr;
    status_ = absl::InvalidArgumentError(absl::StrCat(described != nullptr ? described : VariableOf(name),
                                                      "=", text, " is not accepted; accepted: ", accepted));
  }

  const char* Value(const char* name) const { return source_.value ? source_.value(name) : nullptr; }
  const absl::Status& status() const { return status_; }

 private:
  const SettingSource& source_;
  absl::Status status_;
};

enum class Mode : uint8_t { kOn, kOff, kObserve };

absl::StatusOr<Mode> ReadMode(std::string_view text) {
  if (absl::AsciiStrToLower(absl::string_view(text.data(), text.size())) == "observe") return Mode::kObserve;
  const auto on = ParseSwitch(text);
  if (!on.ok()) return absl::InvalidArgumentError("on, off or observe");
  return *on ? Mode::kOn : Mode::kOff;
}

absl::StatusOr<std::string> ReadPath(std::string_view text) {
  if (text.empty() || text.find('\n') != std::string_view::npos) return absl::InvalidArgumentError("a path");
  return std::string(text);
}

absl::StatusOr<std::string> ReadPathOrNone(std::string_view text) {
  return text == "none" ? absl::StatusOr<std::string>("") : ReadPath(text);
}

// Reads a setting that is one of `words`, in the order of the enumeration `Word`.
template <typename Word>
void ReadWord(Reader* reader, const char* name, Word* target, const std::vector<std::string>& words) {
  auto place = static_cast<size_t>(*target);
  reader->Read(name, &place, [&words](std::string_view text) { return ParseWord(text, words); });
  *target = static_cast<Word>(place);
}

absl::StatusOr<Size> ReadPositiveShare(std::string_view text) {
  SPILLWAY_ASSIGN_OR_RETURN(const Size size, ParseSize(text, Percent::kAccepted));
  if (size.percent == 0 && size.bytes < (uint64_t{64} << 20)) {
    return absl::InvalidArgumentError("a size of at least 64MiB, such as 20GiB, or a share such as 60%");
  }
  return size;
}

// A setting whose feature is missing may say that it is not wanted.
void ReadMissing(const SettingRow& row, Reader* reader) {
  const char* text = reader->Value(row.name);
  if (text == nullptr) return;
  const std::string value = absl::AsciiStrToLower(text);
  for (const std::string_view harmless : {"", "off", "0", "none", "normal"}) {
    if (value == harmless) return;
  }
  reader->Refuse(row.name, text, absl::StrCat(row.fallback, " only, since this version does not have it"));
}

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

std::span<const SettingRow> SettingTable() { return kTable; }

std::string VariableOf(const std::string& name) {
  if (name == "spillway") return std::string(kPrefix);
  return absl::StrCat(kPrefix.data(), "_", absl::AsciiStrToUpper(name));
}

std::vector<std::string> EnvironmentNames() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

std::string EnvironmentValue(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

absl::StatusOr<Settings> ReadSettings(const SettingSource& source, std::vector<std::string>* warnings) {
  Settings settings;
  Reader reader(source);
  ReadRanks(&settings);
  for (const SettingRow& row : kTable) {
    if (!row.exists) ReadMissing(row, &reader);
  }
  const auto size = [](std::string_view text) { return ParseSize(text, Percent::kRefused); };
  const auto share = [](std::string_view text) { return ParseSize(text, Percent::kAccepted); };
  Mode mode = Mode::kOn;
  reader.Read("spillway", &mode, ReadMode);
  settings.enabled = mode != Mode::kOff;
  settings.observe = mode == Mode::kObserve;
  reader.Read("gpu_memory", &settings.gpu_memory, ReadPositiveShare);
  reader.Read("host_memory", &settings.host_memory, share);
  std::vector<std::vector<DirectoryEntry>> ranks;
  reader.Read("dirs", &ranks, ParseDirectories);
  if (!ranks.empty()) settings.directories = ranks[static_cast<size_t>(settings.local_rank) % ranks.size()];
  for (const std::vector<DirectoryEntry>& list : ranks) {
    std::vector<std::string>& paths = settings.rank_directories.emplace_back();
    for (const DirectoryEntry& entry : list) paths.push_back(entry.path);
  }
  reader.Read("disk_reserve", &settings.disk_reserve, size);
  ReadWord(&reader, "policy", &settings.policy, {"plan", "lru"});
  reader.Read("checksum", &settings.checksum, ParseSwitch);
  ReadWord(&reader, "on_full", &settings.on_full, {"spill", "error"});
  ReadWord(&reader, "trust", &settings.trust, {"normal", "strict"});
  reader.Read("audit", &settings.audit, ParseSwitch);
  reader.Read("denylist", &settings.denylist_file, ReadPathOrNone);
  reader.Read("wait_limit", &settings.wait_limit, ParseDuration);
  reader.Read("io_model", &settings.io_model, ParseDiskModel);
  reader.Read("metrics", &settings.metrics_file, ReadPath);
  reader.Read("trace", &settings.trace_file, ReadPathOrNone);
  ReadWord(&reader, "status", &settings.status, {"off", "signal"});
  ReadWord(&reader, "log", &settings.log_level, {"off", "error", "warn", "info", "debug"});
  if (!reader.status().ok()) return reader.status();
  WarnOfUnknown(source.variables, warnings);
  return settings;
}

}  // namespace spillway::integration
