#include "integration/settings/setting_types.h"

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace spillway::integration::setting_type {

std::vector<std::string> WordsOf(std::string_view accepted) {
  const absl::string_view text(accepted.data(), accepted.size());
  return absl::StrSplit(absl::StrReplaceAll(text, {{" or ", ", "}}), ", ");
}

absl::StatusOr<PlainSize::Value> PlainSize::Read(std::string_view text, std::string_view) {
  return ParseSize(text, Percent::kRefused);
}

absl::StatusOr<Share::Value> Share::Read(std::string_view text, std::string_view) {
  return ParseSize(text, Percent::kAccepted);
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

absl::StatusOr<Path::Value> Path::Read(std::string_view text, std::string_view) {
  if (text.empty() || text.find('\n') != std::string_view::npos) return absl::InvalidArgumentError("a path");
  return std::string(text);
}

absl::StatusOr<PathOrNone::Value> PathOrNone::Read(std::string_view text, std::string_view accepted) {
  return text == "none" ? absl::StatusOr<std::string>("") : Path::Read(text, accepted);
}

}  // namespace spillway::integration::setting_type
