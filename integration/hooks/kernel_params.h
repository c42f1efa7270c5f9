// The scan of a launch's parameter bytes for addresses of our blocks. Pure: bytes and a layout in, blocks
// out; it needs no driver, takes no lock and cannot fail. The readers of arguments call it on launching
// threads. FunctionRegistry knows which parameters a function has; the gate uses the set.

#ifndef SPILLWAY_INTEGRATION_HOOKS_KERNEL_PARAMS_H_
#define SPILLWAY_INTEGRATION_HOOKS_KERNEL_PARAMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/memory/address_map.h"
#include "allocator/memory/block_id.h"

namespace spillway::integration {

// The parameters of one function that can hold an address: those of 8 bytes and more, in order.
class ParamLayout {
 public:
  // Appends the next parameter, of `bytes` bytes. One of less than 8 bytes takes an index and nothing else.
  void Append(size_t bytes);
  uint32_t count() const { return count_; }
  // Whether a parameter is long enough for a tensor map.
  bool wide() const { return wide_; }

  struct Entry {
    uint32_t index;  // into kernelParams
    uint32_t words;  // whole 8-byte words
  };
  const std::vector<Entry>& entries() const { return entries_; }
  // Whether a parameter is long enough to be looked through several words at a time.
  static constexpr size_t kLongWords = 8;
  bool has_long() const { return has_long_; }
  friend bool operator==(const ParamLayout& a, const ParamLayout& b);

 private:
  uint32_t count_ = 0;
  bool has_long_ = false;
  bool wide_ = false;
  std::vector<Entry> entries_;
};

// kBest scans long parameters with AVX2 where the processor has it; kOneByOne never does, for tests.
enum class ScanWay { kBest, kOneByOne };

// Adds the blocks that the parameters name to `set`. `params[i]` points at the bytes of parameter i, which
// need no alignment. Looks at each whole 8-byte word of each parameter, structs by value included: a pointer
// into a block or one past its end counts. Any thread, no lock.
void ScanKernelParams(const void* const* params, const ParamLayout& layout, const allocator::AddressMap& map,
                      allocator::AccessSet* set, ScanWay way = ScanWay::kBest);

// The same for each 8-byte word of one run of bytes: the `extra` form of a launch, structs of other calls.
void ScanBytes(const void* bytes, size_t size, const allocator::AddressMap& map, allocator::AccessSet* set,
               ScanWay way = ScanWay::kBest);

// The parameter buffer of a launch's `extra` list; null bytes when the list names none or is malformed.
struct ExtraBuffer {
  const void* bytes = nullptr;
  size_t size = 0;
};
ExtraBuffer FindExtraBuffer(void* const* extra);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_KERNEL_PARAMS_H_
