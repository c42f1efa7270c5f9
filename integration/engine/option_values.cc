#include "integration/engine/option_values.h"

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

// Bytes of one unit, 0 for what is none.
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
    if (cap.bytes == 0)
      return absl::InvalidArgumentError("directories with a cap above 0, as in /nvme0:500GB");
    entry.cap_bytes = cap.bytes;
    text = Trimmed(text.substr(0, colon));
  }
  if (text.empty() || text.front() != '/') {
    return absl::InvalidArgumentError("absolute paths of directories, as in /nvme0,/nvme1:2TiB, or none");
  }
  entry.path = std::string(text);
  return entry;
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
        if (other.path == entry.path) return absl::InvalidArgumentError("each directory once for each rank");
      }
      entries.push_back(std::move(entry));
    }
  }
  return ranks;
}

}  // namespace spillway::integration
