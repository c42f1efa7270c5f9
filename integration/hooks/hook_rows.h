// The rows of driver_symbols.def as types and constants: one Row per symbol, its function type, its name
// without ABI suffixes, and whether it is a per-thread-default-stream form. The address of each real function
// lies in a RealTable, filled once when the hooks are installed. No wrapper lives here.

#ifndef SPILLWAY_INTEGRATION_HOOKS_HOOK_ROWS_H_
#define SPILLWAY_INTEGRATION_HOOKS_HOOK_ROWS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "integration/hooks/driver_compat.h"

namespace spillway::integration {

enum class Row : uint16_t {
#define DRIVER_SYMBOL(symbol, use) symbol,
#include "allocator/driver/driver_symbols.def"
#undef DRIVER_SYMBOL
  kCount,
};
inline constexpr size_t kRowCount = static_cast<size_t>(Row::kCount);

// What driver_symbols.def says of a row.
enum class RowUse : uint8_t { USED, HOOK, MUST };

// A string as a template argument: families of wrappers are chosen by the name of the driver function.
template <size_t N>
struct FixedString {
  char text[N] = {};
  constexpr FixedString() = default;
  constexpr FixedString(const char (&literal)[N]) {  // NOLINT: implicit, so that HookOf<"cuFoo"> reads well
    for (size_t i = 0; i < N; ++i) text[i] = literal[i];
  }
  constexpr std::string_view view() const { return std::string_view(text, N - 1); }
};

// "cuMemcpyHtoD_v2_ptds" -> "cuMemcpyHtoD": the name that all ABIs of one function share.
constexpr std::string_view BaseNameOf(std::string_view symbol) {
  if (symbol.ends_with("_ptsz") || symbol.ends_with("_ptds")) symbol.remove_suffix(5);
  const size_t n = symbol.size();
  if (n > 3 && symbol[n - 3] == '_' && symbol[n - 2] == 'v' && symbol[n - 1] >= '0' && symbol[n - 1] <= '9') {
    symbol.remove_suffix(3);
  }
  return symbol;
}

constexpr bool IsSynchronous(std::string_view symbol) {
  const bool transfer = symbol.starts_with("cuMemcpy") || symbol.starts_with("cuMemset");
  return transfer && symbol.find("Async") == std::string_view::npos;
}

constexpr bool IsPerThreadForm(std::string_view symbol) {
  return symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
}

// FNV-1a, 64 bits: names of functions and kinds of calls as tags of a trace.
constexpr uint64_t HashName(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// What a wrapper knows about the row it wraps.
struct RowInfo {
  const char* symbol;
  uint64_t tag;             // equal for all forms of one function
  bool per_thread_default;  // a null stream means the calling thread's
  bool synchronous;         // a copy or memset that may return only after the GPU has done it
};

template <Row R>
struct RowTraits;

#define DRIVER_SYMBOL(symbol_, use_)                                                                       \
  template <>                                                                                              \
  struct RowTraits<Row::symbol_> {                                                                         \
    using Function = decltype(&::symbol_);                                                                 \
    static constexpr RowUse kUse = RowUse::use_;                                                           \
    static constexpr std::string_view kSymbol = #symbol_;                                                  \
    static constexpr RowInfo kInfo = {#symbol_, HashName(BaseNameOf(#symbol_)), IsPerThreadForm(#symbol_), \
                                      IsSynchronous(#symbol_)};                                            \
  };
#include "allocator/driver/driver_symbols.def"
#undef DRIVER_SYMBOL

// Calls visit.template operator()<Row>() for each row in order.
template <typename Visitor>
void ForEachRow(Visitor&& visit) {
#define DRIVER_SYMBOL(symbol, use) visit.template operator()<Row::symbol>();
#include "allocator/driver/driver_symbols.def"
#undef DRIVER_SYMBOL
}

// Base name of a row as a template argument.
template <Row R>
constexpr auto BaseOf() {
  constexpr std::string_view base = BaseNameOf(RowTraits<R>::kSymbol);
  FixedString<base.size() + 1> fixed;
  for (size_t i = 0; i < base.size(); ++i) fixed.text[i] = base[i];
  return fixed;
}

// The real functions; null where this driver lacks one. Constant once the first wrapper is installed.
class RealTable {
 public:
  template <Row R>
  typename RowTraits<R>::Function Get() const {
    return reinterpret_cast<typename RowTraits<R>::Function>(entries_[static_cast<size_t>(R)]);
  }
  void Set(Row row, void* address) { entries_[static_cast<size_t>(row)] = address; }

 private:
  std::array<void*, kRowCount> entries_{};
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_HOOK_ROWS_H_
