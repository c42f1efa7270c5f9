// Scans the parameter bytes of a launch for addresses of our blocks. Pure: bytes and a layout in, blocks out.
// It needs no driver, takes no lock and cannot fail. The readers of arguments call it on launching threads.
// FunctionRegistry knows which parameters a function has; the gate uses the set.

#ifndef SPILLWAY_INTEGRATION_HOOKS_KERNEL_PARAMS_H_
#define SPILLWAY_INTEGRATION_HOOKS_KERNEL_PARAMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/memory/address_map.h"
#include "allocator/memory/block_id.h"

namespace spillway::integration {

// The parameters of one function that can contain an address: those of 8 bytes and more, in order.
class ParamLayout {
 public:
  // Appends the next parameter, of `bytes` bytes. A parameter of less than 8 bytes takes an index and nothing
  // else.
  void Append(size_t bytes);
  uint32_t count() const { return count_; }
  // Returns whether a parameter is long enough for a tensor map.
  bool wide() const { return wide_; }

  struct Entry {
    uint32_t index;  // into kernelParams
    uint32_t words;  // whole 8-byte words
  };
  const std::vector<Entry>& entries() const { return entries_; }
  // The number of words from which on a parameter is scanned several words at a time.
  static constexpr size_t kLongWords = 8;
  bool has_long() const { return has_long_; }
  friend bool operator==(const ParamLayout& a, const ParamLayout& b);

 private:
  uint32_t count_ = 0;
  bool has_long_ = false;
  bool wide_ = false;
  std::vector<Entry> entries_;
};

// kBest scans long parameters with AVX2 if the processor has it; kOneByOne never does, for tests.
enum class ScanWay { kBest, kOneByOne };

// Adds the blocks that the parameters name to `set`. `params[i]` points at the bytes of parameter i, which
// need no alignment. Looks at each whole 8-byte word of each parameter, structs by value included. A pointer
// into a block or one past its end counts. Thread-safe; takes no lock.
void ScanKernelParams(const void* const* params, const ParamLayout& layout, const allocator::AddressMap& map,
                      allocator::AccessSet* set, ScanWay way = ScanWay::kBest);

// Adds the blocks that the 8-byte words of one run of bytes name: the `extra` form of a launch, structs of
// other calls.
void ScanBytes(const void* bytes, size_t size, const allocator::AddressMap& map, allocator::AccessSet* set,
               ScanWay way = ScanWay::kBest);

// The parameter buffer of a launch's `extra` list; `bytes` is null if the list names none or is malformed.
struct ExtraBuffer {
  const void* bytes = nullptr;
  size_t size = 0;
};
ExtraBuffer FindExtraBuffer(void* const* extra);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_KERNEL_PARAMS_H_
