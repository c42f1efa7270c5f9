#include "integration/profile/kernel_writes.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace spillway::integration {
namespace {

using policy::FormFacts;

// The places of the pointers to written memory among a kernel's parameters.
enum class Order : uint8_t { kResultsFirst, kResultsLast };

struct KernelRow {
  std::string_view name;  // KernelBaseName
  Order order;
  uint8_t operands;  // at most, that are only read
  uint8_t results;   // at most; an operand that is written in place is one of them
  uint8_t sure;      // leading pointers that name blocks wherever another one does
};

constexpr KernelRow kRows[] = {
#define KERNEL(name, order, operands, results, sure) {name, Order::order, operands, results, sure},
#include "integration/profile/kernel_writes.def"
};
static_assert(std::ranges::is_sorted(kRows, {}, &KernelRow::name));

// Takes the next name from the front of a mangled nested one. Empty: none follows.
std::string_view TakeName(std::string_view* mangled) {
  if (mangled->starts_with('L')) mangled->remove_prefix(1);  // of its own file alone
  size_t bytes = 0;
  const auto [rest, error] = std::from_chars(mangled->data(), mangled->data() + mangled->size(), bytes);
  if (error != std::errc()) return "";
  mangled->remove_prefix(static_cast<size_t>(rest - mangled->data()));
  const std::string_view name = mangled->substr(0, bytes);
  mangled->remove_prefix(name.size());
  return name.size() == bytes ? name : "";
}

// Operators, and kernels of at::native. A few of PyTorch's stand in no namespace but an unnamed one, to which
// the compiler gives a name.
bool IsOfPyTorch(std::string_view name) {
  if (!name.starts_with("_Z")) return name.starts_with("aten::");
  if (!name.starts_with("_ZN")) return false;
  name.remove_prefix(3);
  const std::string_view first = TakeName(&name);
  return first.starts_with("_GLOBAL__N_") || (first == "at" && TakeName(&name) == "native");
}

uint64_t FirstBits(uint32_t count) { return (uint64_t{1} << count) - 1; }

}  // namespace

std::string_view KernelBaseName(std::string_view name) {
  if (!name.starts_with("_Z")) return name;
  name.remove_prefix(name.starts_with("_ZN") ? 3 : 2);
  std::string_view last;
  for (std::string_view next = TakeName(&name); !next.empty(); next = TakeName(&name)) last = next;
  return last;
}

std::vector<FormFacts> KnownWrites(std::string_view name, uint64_t tag) {
  std::vector<FormFacts> known;
  if (!IsOfPyTorch(name)) return known;
  const std::string_view base = KernelBaseName(name);
  const auto* const row = std::ranges::lower_bound(kRows, base, {}, &KernelRow::name);
  if (row == std::end(kRows) || row->name != base) return known;
  // Which of its pointers name blocks is not known, where fewer than all do. But of those that do so many at
  // most are results, and all others stand before them, or behind.
  const uint32_t pointers = uint32_t{row->operands} + row->results;
  for (uint32_t blocks = 1; blocks <= pointers; ++blocks) {
    const uint64_t all = FirstBits(blocks);
    const uint32_t leading = blocks - std::min<uint32_t>(blocks, row->results);
    const uint32_t sure = std::min<uint32_t>(blocks, row->sure);
    uint64_t reads = 0, writes = 0;
    if (row->order == Order::kResultsFirst) {
      reads = all & ~FirstBits(row->results);
      writes = FirstBits(blocks == pointers ? row->results : sure);
    } else {
      reads = FirstBits(std::max(leading, sure));
      writes = blocks == pointers ? all & ~reads : 0;
    }
    if ((reads | writes) != 0) known.push_back({{tag, blocks}, reads, writes});
  }
  return known;
}

}  // namespace spillway::integration
