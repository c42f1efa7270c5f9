#include "integration/cli/common/utf8.h"

#include <cstddef>
#include <cstdint>

namespace spillway::integration {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// Returns the length of the character that begins at `at`; 0: none does. Surrogates, numbers above U+10FFFF
// and forms longer than needed are no characters.
size_t CharacterAt(absl::string_view text, size_t at) {
  const auto byte = [&text](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const uint8_t first = byte(at);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(at + 1);
  if (first == 0xE0 && second < 0xA0) return 0;
  if (first == 0xED && second > 0x9F) return 0;
  if (first == 0xF0 && second < 0x90) return 0;
  if (first == 0xF4 && second > 0x8F) return 0;
  return length;
}

}  // namespace

std::string ValidUtf8(absl::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterAt(text, at);
    if (length == 0) {
      valid += kReplacement;
      ++at;
      continue;
    }
    valid.append(text.data() + at, length);
    at += length;
  }
  return valid;
}

// Control characters are C0, DEL, and C1 in UTF-8 (C2 80 to C2 9F).
std::string WithoutControls(absl::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t next = i + 1 < text.size() ? static_cast<uint8_t>(text[i + 1]) : 0;
    const bool c1 = byte == 0xC2 && next >= 0x80 && next < 0xA0;
    plain += byte < 0x20 || byte == 0x7F || c1 ? '?' : text[i];
    if (c1) ++i;
  }
  return plain;
}

}  // namespace spillway::integration
