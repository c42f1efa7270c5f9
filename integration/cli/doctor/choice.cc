#include "integration/cli/doctor/choice.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "integration/cli/common/units.h"
#include "integration/cli/doctor/judgement.h"
#include "integration/engine/sizing.h"
#include "integration/settings/environment.h"
#include "integration/settings/setting_limits.h"
#include "integration/settings/setting_values.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

using os::BytesText;

// A tier below this is staging for the disk and little else.
constexpr uint64_t kMinHostTier = 64 * kMebibyte;
// The smallest reserve that is offered, and the space that it must leave.
constexpr uint64_t kSmallReserve = kGibibyte;
constexpr uint64_t kMinSpace = kGibibyte;
// A disk slower than this part of the fastest is left out: its bytes come back late.
constexpr double kTooSlow = 1.0 / 8;
// The part of the link's rate below which disks make host memory worth more than beside fast ones.
constexpr double kSlowBesideLink = 0.5;

// Returns "5GiB" or "1536MiB": exact, and in a setting's form.
std::string SizeText(uint64_t bytes) {
  if (bytes % kMebibyte != 0) return absl::StrCat(bytes);
  return bytes % kGibibyte == 0 ? absl::StrCat(bytes / kGibibyte, "GiB")
                                : absl::StrCat(bytes / kMebibyte, "MiB");
}

// Rounds larger values more coarsely, since people read them.
uint64_t RoundedDown(uint64_t bytes) {
  const uint64_t unit = bytes >= 8 * kGibibyte ? kGibibyte : bytes >= kGibibyte ? kGibibyte / 4 : kChunkBytes;
  return bytes / unit * unit;
}

double SlowerRate(const DiskFacts& disk) {
  if (!disk.rate_problem.empty()) return 0;  // not measured
  return std::min(disk.rates.write.late_bytes_per_second, disk.rates.read.late_bytes_per_second);
}

class Choice {
 public:
  explicit Choice(const DoctorFacts& facts) : facts_(facts) { ChooseReserve(); }

  std::vector<ChosenSetting> All() {
    const std::vector<const DiskFacts*> disks = ChooseDisks();
    GpuMemory();
    HostMemory(disks);
    Directories(disks);
    if (!reserve_.name.empty()) settings_.push_back(reserve_);
    Remaining();
    return std::move(settings_);
  }

 private:
  const std::string* Given(const char* name) const {
    const auto found = facts_.given.values.find(name);
    return found == facts_.given.values.end() ? nullptr : &found->second;
  }
  // Returns the space under the reserve that is chosen.
  uint64_t SpaceOf(const DiskFacts& disk) const {
    DiskFacts with = disk;
    if (new_reserve_) with.reserve_bytes = *new_reserve_;
    return with.SpaceBytes();
  }
  bool Usable(const DiskFacts& disk) const { return disk.start.problem.empty() && SpaceOf(disk) > 0; }

  void Take(const char* name, const std::string& reason = "as given") {
    settings_.push_back({name, *Given(name), reason, true});
  }
  void Unset(const std::string& name, const std::string& reason) {
    settings_.push_back({name, "", reason, false, Given(name.c_str()) != nullptr});
  }

  void ChooseReserve();
  bool DirectoriesAreRefused() const;
  std::string RankLists(const std::vector<const DiskFacts*>& disks) const;
  std::vector<const DiskFacts*> ChooseDisks();
  void GpuMemory();
  void HostMemory(const std::vector<const DiskFacts*>& disks);
  void DefaultHostMemory(const std::vector<const DiskFacts*>& disks);
  void Directories(const std::vector<const DiskFacts*>& disks);
  void Remaining();

  const DoctorFacts& facts_;
  std::optional<uint64_t> new_reserve_;
  ChosenSetting reserve_;
  std::vector<std::string> left_out_;  // directories, each with the reason
  std::vector<ChosenSetting> settings_;
};

// Chooses a smaller reserve if the default leaves no space on any disk and a smaller one would. The user's
// own stays.
void Choice::ChooseReserve() {
  if (const std::string* const given = Given("disk_reserve")) {
    reserve_ = {"disk_reserve", *given, "as given", true};
    return;
  }
  const DiskFacts* most = nullptr;
  bool space = false;
  for (const DiskFacts& disk : facts_.disks) {
    if (!disk.start.problem.empty()) continue;
    space |= disk.SpaceBytes() > 0;
    if (most == nullptr || disk.start.free_bytes > most->start.free_bytes) most = &disk;
  }
  if (space || most == nullptr || most->start.free_bytes < kSmallReserve + kMinSpace) return;
  new_reserve_ = kSmallReserve;
  reserve_ = {"disk_reserve", SizeText(kSmallReserve),
              absl::StrCat("a reserve of ", BytesText(most->reserve_bytes), " leaves nothing of the ",
                           BytesText(most->start.free_bytes), " that are free in ", most->start.path),
              false};
}

// Returns usable directories, one of each file system, without those that are much slower than the fastest.
std::vector<const DiskFacts*> Choice::ChooseDisks() {
  double fastest = 0;
  for (const DiskFacts& disk : facts_.disks) {
    if (Usable(disk)) fastest = std::max(fastest, SlowerRate(disk));
  }
  std::vector<const DiskFacts*> chosen;
  std::set<uint64_t> file_systems;
  for (const DiskFacts& disk : facts_.disks) {
    const double rate = SlowerRate(disk);
    const auto leave_out = [&](const std::string& why) {
      left_out_.push_back(absl::StrCat("without ", disk.start.path, ": ", why));
    };
    if (!disk.start.problem.empty()) {
      leave_out("it cannot be used");
    } else if (!Usable(disk)) {
      leave_out(absl::StrCat("a reserve of ", BytesText(disk.reserve_bytes), " leaves nothing of the ",
                             BytesText(disk.start.free_bytes), " that are free"));
    } else if (rate > 0 && rate < fastest * kTooSlow) {
      leave_out(absl::StrCat(RateText(rate), " beside ", RateText(fastest)));
    } else if (!file_systems.insert(disk.file_system_id).second) {
      leave_out("its file system is there already");
    } else {
      chosen.push_back(&disk);
    }
  }
  return chosen;
}

void Choice::GpuMemory() {
  const auto& devices = facts_.driver.devices;
  uint64_t largest = 0;
  for (const DeviceFacts& device : devices) largest = std::max(largest, device.bytes);
  const std::string* const given = Given("gpu_memory");
  const auto size = given == nullptr ? absl::StatusOr<Size>(Size()) : ParseSize(*given, Percent::kAccepted);
  if (given != nullptr && (largest == 0 || (size.ok() && size->Of(largest) <= largest))) {
    Take("gpu_memory");
    return;
  }
  const std::string more = given == nullptr ? "" : absl::StrCat(*given, " is more than a GPU has; ");
  if (devices.empty()) {
    Unset("gpu_memory", absl::StrCat(more, "a job takes the memory that is free at its first block"));
    return;
  }
  const DeviceFacts& first = devices.front();
  Unset("gpu_memory",
        absl::StrCat(
            more,
            "a job takes the memory that is free at its first block, less a reserve; now that is on GPU 0 ",
            Text(MemoryPartsOf(LimitedBudget(DefaultBudget(first.free_bytes, 0),
                                             Limited(UINT64_MAX, facts_.most_gpu_memory, first.bytes)),
                               first.bytes))));
}

void Choice::HostMemory(const std::vector<const DiskFacts*>& disks) {
  const std::string* const given = Given("host_memory");
  if (given == nullptr) return DefaultHostMemory(disks);
  const ::spillway::integration::HostMemory& host = facts_.system.memory;
  const uint64_t most = host.group_bytes == 0     ? host.machine_bytes
                        : host.machine_bytes == 0 ? host.group_bytes
                                                  : std::min(host.group_bytes, host.machine_bytes);
  const auto size = ParseSize(*given, Percent::kAccepted);
  if (size.ok() && size->percent == 0 && most != 0 && size->bytes > most) return DefaultHostMemory(disks);
  std::string reason = "as given";
  const uint64_t available = facts_.system.memory.available_bytes;
  if (size.ok() && available != 0 && size->Of(available) > available)
    absl::StrAppend(&reason, "; only ", BytesText(available), " are available now");
  Take("host_memory", reason);
}

void Choice::DefaultHostMemory(const std::vector<const DiskFacts*>& disks) {
  const uint64_t available = facts_.system.memory.available_bytes;
  if (available == 0) {
    Unset("host_memory", "the available memory is not known: set a size that can be spared");
    return;
  }
  double link = 0, disk_rate = 0;
  for (const DeviceFacts& device : facts_.driver.devices) {
    if (device.link.problem.empty())
      link = std::max(link, std::min(device.link.both_in.PerSecond(), device.link.both_out.PerSecond()));
  }
  for (const DiskFacts* disk : disks) disk_rate += SlowerRate(*disk);
  const bool slow =
      !facts_.driver.stand_in && link > 0 && disk_rate > 0 && disk_rate < kSlowBesideLink * link;
  const bool half = slow || (disks.empty() && facts_.disk_unused.empty());
  const uint64_t unlimited = half ? available / 2 : DefaultHostCap(available, 1);
  const uint64_t bytes = RoundedDown(Limited(unlimited, facts_.most_host_memory, available));
  std::string reason =
      absl::StrCat(half ? "half of the " : "a quarter of the ", BytesText(available), " available");
  if (bytes < RoundedDown(unlimited)) reason = "the limit of /etc/spillway.conf; without it " + reason;
  if (half && disks.empty()) absl::StrAppend(&reason, ", since there is no disk to spill to");
  if (slow)
    absl::StrAppend(&reason, ", since the disks do ", RateText(disk_rate), " where the link does ",
                    RateText(link));
  const int ranks = facts_.ranks.size;
  if (ranks > 1)
    absl::StrAppend(&reason, "; for all ", ranks, " ranks of the node, each ",
                    BytesText(ShareOfRank(bytes, ranks)));
  if (bytes < kMinHostTier) {
    const char* const rest = !disks.empty() ? "the disk alone, with 48 MiB of staging"
                             : facts_.disk_unused.empty()
                                 ? "with no disk either, a job has its GPU's memory alone"
                                 : "too little for a host tier";
    settings_.push_back(
        {"host_memory", "0", absl::StrCat("only ", BytesText(available), " are available: ", rest)});
    return;
  }
  settings_.push_back({"host_memory", SizeText(bytes), reason});
}

std::string EntryText(const std::string& path, uint64_t cap_bytes) {
  return cap_bytes == 0 ? path : absl::StrCat(path, ":", SizeText(cap_bytes));
}

// Returns whether a job's start refuses the directories that the user has named.
bool Choice::DirectoriesAreRefused() const {
  const auto refused = [](const DiskFacts& disk) { return !disk.start.problem.empty(); };
  const auto usable = [this](const DiskFacts& disk) { return Usable(disk); };
  return std::any_of(facts_.disks.begin(), facts_.disks.end(), refused) ||
         std::none_of(facts_.disks.begin(), facts_.disks.end(), usable);
}

// Returns the lists if the user has named one for each rank: `disks` for this rank, and the others' lists
// without the directories that this rank found not to work. Empty if there is one list for all, or if a list
// would be empty, which no setting can express.
std::string Choice::RankLists(const std::vector<const DiskFacts*>& disks) const {
  const std::string* const given = Given("dirs");
  if (given == nullptr) return "";
  const auto lists = ParseDirectories(*given);
  if (!lists.ok() || lists->size() < 2) return "";
  const auto works = [this](const std::string& path) {
    return std::none_of(facts_.disks.begin(), facts_.disks.end(), [&](const DiskFacts& disk) {
      return disk.start.path == path && !disk.start.problem.empty();
    });
  };
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < lists->size(); ++rank) {
    std::vector<std::string> entries;
    if (rank == static_cast<size_t>(facts_.ranks.rank) % lists->size()) {
      for (const DiskFacts* disk : disks) entries.push_back(EntryText(disk->start.path, disk->cap_bytes));
    } else {
      for (const DirectoryEntry& entry : (*lists)[rank])
        if (works(entry.path)) entries.push_back(EntryText(entry.path, entry.cap_bytes));
    }
    if (entries.empty()) return "";
    texts.push_back(absl::StrJoin(entries, ","));
  }
  return absl::StrJoin(texts, ";");
}

void Choice::Directories(const std::vector<const DiskFacts*>& disks) {
  const bool given = Given("dirs") != nullptr;
  if (given && (left_out_.empty() || (!facts_.disk_unused.empty() && !DirectoriesAreRefused()))) {
    Take("dirs");
    return;
  }
  if (!facts_.disk_unused.empty()) {
    if (given) Unset("dirs", absl::StrCat(facts_.disk_unused, "; ", absl::StrJoin(left_out_, "; ")));
    return;
  }
  std::string reason;
  if (disks.empty()) {
    reason = left_out_.empty() ? "no disk is writable" : absl::StrJoin(left_out_, "; ");
    settings_.push_back({"dirs", "none", reason});
    return;
  }
  std::vector<std::string> entries;
  uint64_t space = 0;
  double rate = 0;
  for (const DiskFacts* disk : disks) {
    entries.push_back(EntryText(disk->start.path, disk->cap_bytes));
    space += SpaceOf(*disk);
    rate += SlowerRate(*disk);
  }
  reason = absl::StrCat("space for ", BytesText(space));
  if (rate > 0) absl::StrAppend(&reason, ", ", RateText(rate), " in the slower direction");
  for (const std::string& words : left_out_) absl::StrAppend(&reason, "; ", words);
  const std::string lists = RankLists(disks);
  if (!lists.empty()) absl::StrAppend(&reason, "; with the lists of the other ranks");
  settings_.push_back({"dirs", lists.empty() ? absl::StrJoin(entries, ",") : lists, reason});
}

void Choice::Remaining() {
  for (const auto& [name, value] : facts_.given.values) {
    const bool there = std::any_of(settings_.begin(), settings_.end(),
                                   [&](const ChosenSetting& setting) { return setting.name == name; });
    if (there) continue;
    const auto file = std::find_if(facts_.files.begin(), facts_.files.end(),
                                   [&](const FileProblem& problem) { return problem.setting == name; });
    if (file == facts_.files.end()) {
      Take(name.c_str());
    } else {
      Unset(name, absl::StrCat(value, " is invalid; expected: ", file->accepted));
    }
  }
}

}  // namespace

std::vector<ChosenSetting> ChooseSettings(const DoctorFacts& facts) { return Choice(facts).All(); }

std::string ShellWord(const std::string& value) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || absl::StrContains("/._-,:%+", std::string(1, c));
  };
  if (std::all_of(value.begin(), value.end(), plain)) return value;
  return absl::StrCat("'", absl::StrReplaceAll(value, {{"'", "'\\''"}}), "'");
}

std::map<std::string, std::string> ValuesOf(const std::vector<ChosenSetting>& settings) {
  std::map<std::string, std::string> values;
  for (const ChosenSetting& setting : settings) {
    if (!setting.value.empty()) values[setting.name] = setting.value;
  }
  return values;
}

std::vector<std::string> ExportLines(const std::vector<ChosenSetting>& settings) {
  std::vector<std::string> lines;
  for (const ChosenSetting& setting : settings) {
    const std::string variable = VariableOf(setting.name);
    if (setting.dropped) {
      lines.push_back(absl::StrCat("unset ", variable, "  # ", setting.reason));
      continue;
    }
    lines.push_back(setting.value.empty() ? absl::StrCat("# ", variable, " stays unset: ", setting.reason)
                                          : absl::StrCat("export ", variable, "=", ShellWord(setting.value),
                                                         "  # ", setting.reason));
  }
  return lines;
}

std::string ConfText(const std::vector<ChosenSetting>& settings, const std::string& kept_conf) {
  std::string text = "backend:spillway";
  for (const ChosenSetting& setting : settings) {
    if (setting.value.empty() || setting.name == "spillway") continue;
    const bool list = setting.value.find_first_of(",:;") != std::string::npos || setting.name == "dirs";
    absl::StrAppend(&text, ",", setting.name, ":", list ? "[" : "", setting.value, list ? "]" : "");
  }
  return kept_conf.empty() ? text : absl::StrCat(text, ",", kept_conf);
}

}  // namespace spillway::integration
