#include "integration/cli/common/quantities.h"

#include <cctype>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace spillway::integration {
namespace {

constexpr double kMinRate = 1e6, kMaxRate = 1e15;

}  // namespace

absl::StatusOr<double> ParseQuantity(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (absl::EndsWith(unit, "/S")) unit.resize(unit.size() - 2);
  const char* const kUnits[] = {"", "B", "KB", "MB", "GB", "TB", "KIB", "MIB", "GIB", "TIB"};
  const double kFactors[] = {1, 1, 1e3, 1e6, 1e9, 1e12, 0x1p10, 0x1p20, 0x1p30, 0x1p40};
  for (int u = 0; u < 10; ++u) {
    if (unit != kUnits[u] || end == text.c_str() || !(number >= 0) || number * kFactors[u] > 1e18) continue;
    return number * kFactors[u];
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a size or a rate; examples: 40GiB, 128GB, 15.754e9"));
}

absl::Status ReadSize(absl::string_view option, const std::string& text, policy::Bytes* value) {
  const auto parsed = ParseQuantity(text);
  if (!parsed.ok() || absl::EndsWithIgnoreCase(text, "/s"))
    return NotAccepted(option, text, "bytes, for example 40GiB, 128GB, 0");
  *value = static_cast<policy::Bytes>(*parsed);
  return absl::OkStatus();
}

absl::Status ReadRate(absl::string_view option, const std::string& text, double* value) {
  const auto parsed = ParseQuantity(text);
  if (!parsed.ok() || *parsed < kMinRate || *parsed > kMaxRate)
    return NotAccepted(option, text, "bytes/s, at least 1e6, for example 15.754e9, 3.2GB/s");
  *value = *parsed;
  return absl::OkStatus();
}

absl::Status NotAccepted(absl::string_view option, absl::string_view value, absl::string_view accepted) {
  return absl::InvalidArgumentError(
      absl::StrCat(option, "=", value, " is invalid; expected: ", accepted));
}

}  // namespace spillway::integration
