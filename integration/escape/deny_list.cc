#include "integration/escape/deny_list.h"

#include <algorithm>

namespace spillway::integration {
namespace {

constexpr std::string_view kAccepted =
    "accepted: a kernel's name as the driver tells it (mangled, without blanks), then, if wanted, the file "
    "name of the "
    "library that it comes in; each may end in *";

constexpr bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// The next word of `rest`, which is cut off in front; empty at the end of the line or at a comment.
std::string_view TakeWord(std::string_view* rest) {
  const size_t start = std::find_if_not(rest->begin(), rest->end(), IsBlank) - rest->begin();
  rest->remove_prefix(start);
  if (rest->starts_with('#')) *rest = {};
  const size_t end = std::find_if(rest->begin(), rest->end(), IsBlank) - rest->begin();
  const std::string_view word = rest->substr(0, end);
  rest->remove_prefix(end);
  return word;
}

// What is wrong with a pattern; empty: nothing.
std::string FaultOf(std::string_view pattern) {
  if (pattern.find('*') < pattern.size() - 1) return "has a * before its end";
  for (const char c : pattern) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "holds a control character";
  }
  if (pattern.find('/') != std::string_view::npos) return "holds a /";
  return "";
}

bool Matches(std::string_view pattern, std::string_view text) {
  if (!pattern.ends_with('*')) return pattern == text;
  pattern.remove_suffix(1);
  return text.starts_with(pattern);
}

// Names may be long: what a message shows of one.
std::string Quoted(std::string_view word) {
  constexpr size_t kShown = 80;
  return "\"" + std::string(word.substr(0, kShown)) + (word.size() > kShown ? "...\"" : "\"");
}

}  // namespace

absl::Status DenyList::Add(std::string_view text, const std::string& file) {
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view name = TakeWord(&rest);
    if (name.empty()) continue;
    const std::string_view library = TakeWord(&rest);
    const std::string_view more = TakeWord(&rest);
    const std::string origin = file + ":" + std::to_string(line);
    const auto refuse = [&](const std::string& what) {
      return absl::InvalidArgumentError(origin + ": " + what + "; " + std::string(kAccepted));
    };
    if (!more.empty()) return refuse("a third word, " + Quoted(more));
    for (const std::string_view word : {name, library}) {
      if (const std::string fault = FaultOf(word); !fault.empty()) return refuse(Quoted(word) + " " + fault);
    }
    entries_.push_back({std::string(name), std::string(library), origin});
    names_libraries_ |= !library.empty();
  }
  return absl::OkStatus();
}

std::string_view DenyList::Shipped() {
  // No audit on a GPU has found a kernel yet. One that does belongs here, with the version that it was seen
  // in.
  static constexpr std::string_view kText = R"(
# Kernels that reach memory by pointers which are not among their parameters.
# NAME [LIBRARY]   # where it was seen
)";
  return kText;
}

const DenyList::Entry* DenyList::Match(std::string_view name, std::string_view library) const {
  for (const Entry& entry : entries_) {
    if (!Matches(entry.name, name)) continue;
    if (entry.library.empty() || (!library.empty() && Matches(entry.library, library))) return &entry;
  }
  return nullptr;
}

std::string DenyListLine(std::string_view name, std::string_view library, std::string_view comment) {
  std::string line(name);
  if (!library.empty()) line += " " + std::string(library);
  if (!comment.empty()) line += "  # " + std::string(comment);
  return line + "\n";
}

}  // namespace spillway::integration
