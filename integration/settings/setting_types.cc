#include "integration/settings/setting_types.h"

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace spillway::integration::setting_type {
namespace {

// A size that is neither nothing nor enough: 20 is 20 bytes, from a user who meant GiB.
bool TooSmall(const Size& size) { return size.percent == 0 && size.bytes != 0 && size.bytes < kMinSize; }

}  // namespace

std::vector<std::string> WordsOf(std::string_view accepted) {
  const absl::string_view text(accepted.data(), accepted.size());
  return absl::StrSplit(absl::StrReplaceAll(text, {{" or ", ", "}}), ", ");
}

absl::StatusOr<PlainSize::Value> PlainSize::Read(std::string_view text, std::string_view) {
  SPILLWAY_ASSIGN_OR_RETURN(const Size size, ParseSize(text, Percent::kRefused));
  if (TooSmall(size)) return absl::InvalidArgumentError("0, or a size of at least 2MiB, such as 20GiB");
  return size;
}

absl::StatusOr<Share::Value> Share::Read(std::string_view text, std::string_view) {
  SPILLWAY_ASSIGN_OR_RETURN(const Size size, ParseSize(text, Percent::kAccepted));
  if (TooSmall(size))
    return absl::InvalidArgumentError("0, a size of at least 2MiB, such as 20GiB, or a share such as 60%");
  return size;
}

absl::StatusOr<ShareAboveZero::Value> ShareAboveZero::Read(std::string_view text, std::string_view) {
  SPILLWAY_ASSIGN_OR_RETURN(const Size size, ParseSize(text, Percent::kAccepted));
  if (size.percent == 0 && size.bytes < (uint64_t{64} << 20)) {
    return absl::InvalidArgumentError("a size of at least 64MiB, such as 20GiB, or a share such as 60%");
  }
  return size;
}

absl::StatusOr<Directories::Value> Directories::Read(std::string_view text, std::string_view) {
  return ParseDirectories(text);
}

absl::StatusOr<PathOrNone::Value> PathOrNone::Read(std::string_view text, std::string_view) {
  const auto on = ParseSwitch(text);  // nobody intends a file of such a name
  if (ParseWord(text, {"none"}).ok() || (on.ok() && !*on)) return std::string();
  if (text.empty() || text.find('\n') != std::string_view::npos || on.ok())
    return absl::InvalidArgumentError("a path, or none");
  return std::string(text);
}

absl::StatusOr<PathOrOff::Value> PathOrOff::Read(std::string_view text, std::string_view accepted) {
  const auto path = PathOrNone::Read(text, accepted);
  if (!path.ok()) return absl::InvalidArgumentError("a path, or off");
  return *path;
}

}  // namespace spillway::integration::setting_type
