#include "integration/settings/setting_values.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "io/os/errno.h"

namespace spillway::integration {
namespace {

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

std::string_view Trimmed(std::string_view text) {
  const absl::string_view stripped = absl::StripAsciiWhitespace(Absl(text));
  return {stripped.data(), stripped.size()};
}

constexpr char kSizeForms[] = "a size such as 20GiB, 500MB or 4096";
constexpr char kSizeOrPercentForms[] = "a size such as 20GiB or 500MB, or a share such as 60%";
constexpr char kWholeBytes[] = "a size such as 20GiB, 500MB or 4096: a number without a unit is whole bytes";
constexpr char kWholeBytesOrPercent[] =
    "a size such as 20GiB, 500MB or 4096: a number without a unit is whole bytes; or a share such as 60%";

// Returns the bytes of one unit; 0 for a text that is none.
double UnitBytes(std::string_view unit) {
  const std::string name = absl::AsciiStrToLower(Absl(unit));
  if (name.empty() || name == "b") return 1;
  static constexpr std::string_view kLetters = "kmgt";
  const size_t place = kLetters.find(name[0]);
  if (place == std::string_view::npos) return 0;
  const std::string rest = name.substr(1);
  if (rest.empty() || rest == "ib") return std::pow(1024.0, static_cast<double>(place + 1));
  if (rest == "b") return std::pow(1000.0, static_cast<double>(place + 1));
  return 0;
}

absl::StatusOr<DirectoryEntry> ParseDirectory(std::string_view text) {
  DirectoryEntry entry;
  text = Trimmed(text);
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    SPILLWAY_ASSIGN_OR_RETURN(const Size cap, ParseSize(text.substr(colon + 1), Percent::kRefused));
    if (cap.bytes < kMinSize)
      return absl::InvalidArgumentError("directories with a cap of at least 2MiB, as in /nvme0:500GB");
    entry.cap_bytes = cap.bytes;
    text = Trimmed(text.substr(0, colon));
  }
  if (text.empty() || text.front() != '/') {
    return absl::InvalidArgumentError("absolute paths of directories, as in /nvme0,/nvme1:2TiB, or none");
  }
  entry.path = std::string(text);
  return entry;
}

constexpr double kYear = 365.0 * 24 * 3600 * 1e9;  // ns
constexpr char kFaultForms[] =
    "none, or faults such as read:EIO:3s:30ms or 1@all:silence:10s:70s (read, write or all; an errno or "
    "silence; start; duration), separated by commas";

constexpr char kDurationForms[] = "a time such as 30s or 5min, or none";
constexpr char kModelForms[] =
    "read, write (bytes a second, 1e6 to 1e12) and latency (up to 1s), each at most once, as in "
    "read:1.2e9,write:800MB,latency:80us, or for one directory as in 1@read:300MB; or none";

// Reads a number from `least` to `most` with a unit that `factor` knows (0: none). Returns 0 for anything
// else.
double ParseNumber(std::string_view text, double (*factor)(std::string_view), double least, double most) {
  double number = 0;
  text = Trimmed(text);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return 0;
  const double value = number * factor(Trimmed(text.substr(static_cast<size_t>(end - text.data()))));
  return value >= least && value <= most ? value : 0;
}

double NanosOfUnit(std::string_view unit) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {{"ns", 1},  {"us", 1e3},   {"ms", 1e6},
                                                                   {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};
  for (const auto& [name, nanos] : kUnits) {
    if (absl::EqualsIgnoreCase(Absl(unit), Absl(name))) return nanos;
  }
  return 0;
}

// Takes "1@" off the front of an item, and hands the number on. Returns false if something else stands before
// an '@'.
template <typename Function>
bool TakeDirectory(absl::string_view* item, const Function& number) {
  const size_t at = item->find('@');
  if (at == absl::string_view::npos) return true;
  uint32_t directory = 0;
  if (!absl::SimpleAtoi(item->substr(0, at), &directory)) return false;
  number(directory);
  item->remove_prefix(at + 1);
  return true;
}

absl::StatusOr<io::DriveFault> ParseDriveFault(std::string_view text) {
  const auto refused = absl::InvalidArgumentError(kFaultForms);
  io::DriveFault fault;
  absl::string_view rest = absl::StripAsciiWhitespace(Absl(text));
  if (!TakeDirectory(&rest, [&](uint32_t directory) { fault.directory = directory; })) return refused;
  const std::vector<absl::string_view> fields = absl::StrSplit(rest, ':');
  if (fields.size() != 4) return refused;
  const std::string operation = absl::AsciiStrToLower(fields[0]);
  fault.reads = operation == "read" || operation == "all";
  fault.writes = operation == "write" || operation == "all";
  fault.error = io::DriveErrno(absl::AsciiStrToUpper(fields[1]));
  const bool answer = fault.error != 0 || absl::EqualsIgnoreCase(fields[1], "silence");
  const std::string_view from(fields[2].data(), fields[2].size());
  const std::string_view length(fields[3].data(), fields[3].size());
  fault.from_nanos = static_cast<int64_t>(ParseNumber(from, NanosOfUnit, 0, kYear));
  fault.for_nanos = static_cast<int64_t>(ParseNumber(length, NanosOfUnit, 1, kYear));
  const bool at_once = fields[2] == "0s";  // ParseNumber answers 0 for what it does not accept
  if ((!fault.reads && !fault.writes) || !answer || fault.for_nanos == 0 ||
      (fault.from_nanos == 0 && !at_once))
    return refused;
  return fault;
}

}  // namespace

absl::StatusOr<Size> ParseSize(std::string_view text, Percent percent) {
  const auto refused =
      absl::InvalidArgumentError(percent == Percent::kAccepted ? kSizeOrPercentForms : kSizeForms);
  text = Trimmed(text);
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0 || std::signbit(number)) return refused;
  const std::string_view unit = Trimmed(text.substr(static_cast<size_t>(end - text.data())));
  Size size;
  if (unit == "%") {
    if (percent == Percent::kRefused || number <= 0 || number > 100) return refused;
    size.percent = number;
    return size;
  }
  const double bytes = number * UnitBytes(unit);
  if (UnitBytes(unit) == 0 || bytes >= 9.2e18) return refused;
  size.bytes = static_cast<uint64_t>(bytes);
  // 0.6 is somebody's share and no size, and would otherwise be the 0 that switches off.
  const bool in_bytes = UnitBytes(unit) == 1;
  if ((size.bytes == 0 && number > 0) || (in_bytes && bytes != static_cast<double>(size.bytes)))
    return absl::InvalidArgumentError(percent == Percent::kAccepted ? kWholeBytesOrPercent : kWholeBytes);
  return size;
}

absl::StatusOr<bool> ParseSwitch(std::string_view text) {
  const std::string word = absl::AsciiStrToLower(Absl(Trimmed(text)));
  if (word == "on" || word == "1") return true;
  if (word == "off" || word == "0") return false;
  return absl::InvalidArgumentError("on, off, 1 or 0");
}

absl::StatusOr<size_t> ParseWord(std::string_view text, const std::vector<std::string>& words) {
  const absl::string_view word = Absl(Trimmed(text));
  std::string accepted;
  for (size_t i = 0; i < words.size(); ++i) {
    if (absl::EqualsIgnoreCase(word, words[i])) return i;
    if (i > 0) accepted += i + 1 == words.size() ? " or " : ", ";
    accepted += words[i];
  }
  return absl::InvalidArgumentError(accepted);
}

absl::StatusOr<std::vector<std::vector<DirectoryEntry>>> ParseDirectories(std::string_view text) {
  std::vector<std::vector<DirectoryEntry>> ranks;
  if (absl::EqualsIgnoreCase(Absl(Trimmed(text)), "none")) {
    ranks.emplace_back();
    return ranks;
  }
  for (absl::string_view rank : absl::StrSplit(Absl(text), ';')) {
    std::vector<DirectoryEntry>& entries = ranks.emplace_back();
    for (absl::string_view item : absl::StrSplit(rank, ',')) {
      SPILLWAY_ASSIGN_OR_RETURN(DirectoryEntry entry, ParseDirectory({item.data(), item.size()}));
      for (const DirectoryEntry& other : entries) {
        if (other.path == entry.path) return absl::InvalidArgumentError("each directory only once per rank");
      }
      entries.push_back(std::move(entry));
    }
  }
  return ranks;
}

absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  if (absl::EqualsIgnoreCase(Absl(Trimmed(text)), "none")) return std::chrono::nanoseconds::zero();
  const double nanos = ParseNumber(text, NanosOfUnit, 1e6, kYear);
  if (nanos == 0) return absl::InvalidArgumentError(kDurationForms);
  return std::chrono::nanoseconds(static_cast<int64_t>(nanos));
}

absl::StatusOr<std::optional<WriteLimit>> ParseWriteLimit(std::string_view text) {
  constexpr std::chrono::hours kIntervals[] = {std::chrono::hours(1), std::chrono::days(1),
                                               std::chrono::weeks(1), std::chrono::days(30)};
  static const auto* const kNames = new std::vector<std::string>{"hour", "day", "week", "month"};
  const auto refused = absl::InvalidArgumentError(
      "none, 0, or a size of at least 2MiB per hour, day, week or month, such as 2TB/day");
  const absl::string_view trimmed = Absl(Trimmed(text));
  if (absl::EqualsIgnoreCase(trimmed, "none")) return std::nullopt;
  if (trimmed == "0") return WriteLimit();
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(trimmed, absl::MaxSplits('/', 1));
  const auto size = ParseSize({parts.first.data(), parts.first.size()}, Percent::kRefused);
  if (!size.ok() || size->bytes < kMinSize) return refused;
  const std::string interval = absl::AsciiStrToLower(absl::StripAsciiWhitespace(parts.second));
  for (size_t i = 0; i < kNames->size(); ++i) {
    const std::string& name = (*kNames)[i];
    if (interval == name || interval == name.substr(0, 1)) return WriteLimit{size->bytes, kIntervals[i]};
  }
  return refused;
}

absl::StatusOr<io::DiskModels> ParseDiskModels(std::string_view text) {
  const auto refused = absl::InvalidArgumentError(kModelForms);
  io::DiskModels models;
  if (absl::EqualsIgnoreCase(Absl(Trimmed(text)), "none")) return models;
  for (absl::string_view item : absl::StrSplit(Absl(text), ',')) {
    io::DiskModelOptions* model = &models.all;
    if (!TakeDirectory(&item, [&](uint32_t directory) { model = &models.own[directory]; })) return refused;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(item, absl::MaxSplits(':', 1));
    const std::string key = absl::AsciiStrToLower(absl::StripAsciiWhitespace(parts.first));
    const std::string_view value(parts.second.data(), parts.second.size());
    if (key == "latency") {
      const auto nanos = static_cast<int64_t>(ParseNumber(value, NanosOfUnit, 1, 1e9));
      if (nanos == 0 || std::exchange(model->latency_nanos, nanos) != 0) return refused;
    } else if (key == "read" || key == "write") {
      double& rate = key == "read" ? model->read_bytes_per_second : model->write_bytes_per_second;
      const double number = ParseNumber(value, UnitBytes, 1e6, 1e12);
      if (number == 0 || std::exchange(rate, number) != 0) return refused;
    } else {
      return refused;
    }
  }
  return models;
}

absl::StatusOr<std::vector<io::DriveFault>> ParseDriveFaults(std::string_view text) {
  std::vector<io::DriveFault> faults;
  if (absl::EqualsIgnoreCase(Absl(Trimmed(text)), "none")) return faults;
  for (absl::string_view item : absl::StrSplit(Absl(text), ',')) {
    SPILLWAY_ASSIGN_OR_RETURN(io::DriveFault fault, ParseDriveFault({item.data(), item.size()}));
    faults.push_back(fault);
  }
  return faults;
}

}  // namespace spillway::integration
