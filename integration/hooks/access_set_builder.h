// Touch: the blocks that one call touches, and what it does to the addresses that are known to lie in device
// memory. The wrapper of the call opens a HookScope, the access-set builders of its arguments
// (copy_access_sets.h, launch_access_sets.h) fill the Touch, the gate acts on it. One thread, the caller's;
// nothing fails: what is not understood is marked as reaching everything.

#ifndef SPILLWAY_INTEGRATION_HOOKS_ACCESS_SET_BUILDER_H_
#define SPILLWAY_INTEGRATION_HOOKS_ACCESS_SET_BUILDER_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "allocator/memory/address_map.h"
#include "allocator/memory/block_id.h"
#include "integration/hooks/hook_context.h"

namespace spillway::integration {

// An argument as an address; what is neither a pointer nor 64 bits wide cannot be one of ours.
template <typename T>
uint64_t AddressOf(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uint64_t>(value);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(value);
  } else {
    return 0;
  }
}

// What one call touches. Lives in the thread's scratch: no allocation in the steady state.
class Touch {
 public:
  // A table of pointers is small; larger copies are data.
  static constexpr uint64_t kLargestPointerTable = 64 * 1024;

  void Begin(HookState* hook_state, HookContext* hook_context);
  HookState* state() const { return state_; }
  HookContext* context() const { return context_; }
  const allocator::AddressMap& map() const { return *context_->addresses; }

  // A device address, or a host one, which is never ours. One past the end of a block counts as the block.
  void Address(uint64_t address) { context_->addresses->Collect(address, &set_); }
  // A range that is read or written; nothing when it is empty.
  void Range(uint64_t address, uint64_t bytes) {
    if (bytes != 0 && context_->addresses->Contains(address))
      context_->addresses->CollectRange(address, bytes, &set_);
  }
  // `rows` runs of `width` bytes, `pitch` apart.
  void PitchedRange(uint64_t address, uint64_t pitch, uint64_t width, uint64_t rows) {
    if (width != 0 && rows != 0) Range(address, (rows - 1) * pitch + width);
  }
  // Bytes of device memory that a call writes: addresses of ours may be among them, to be followed by a
  // kernel that names only the table, and what was known to lie there is gone. Their targets are held before
  // the call.
  void Writes(uint64_t address, uint64_t bytes) {
    if (bytes != 0 && state_->tables.MayTouch(address, bytes)) overwritten_.push_back({address, bytes});
  }
  // From host memory that can be read; looked through when it is small enough for a table.
  void WritesFromHost(uint64_t address, const void* source, uint64_t bytes);
  // From device memory, in which addresses are known or not.
  void WritesFromDevice(uint64_t address, uint64_t source, uint64_t bytes);
  // What the call touches cannot be told: no eviction from now on, and this call needs every block.
  void NotUnderstood(const char* reason) {
    SwitchEvictionOff(state_, reason);
    reaches_all = may_block = true;  // the second so that ordinary launches need not look
  }

  allocator::AccessSet& set() { return set_; }
  // Whether the call changes what is known of addresses in device memory.
  bool rewrites() const { return !found_.empty() || !overwritten_.empty(); }
  const std::vector<TableSlot>& found() const { return found_; }
  struct Piece {
    uint64_t address;
    uint64_t bytes;
  };
  const std::vector<Piece>& overwritten() const { return overwritten_; }

  const FunctionInfo* denied = nullptr;  // the kernel, when it is of the deny list
  bool reaches_all = false;              // NotUnderstood
  uint64_t tag = 0;        // what is launched; the wrapper's own unless a collector knows better
  bool may_block = false;  // the call may wait for the GPU: synchronous, or a copy from or to pageable memory

 private:
  HookState* state_ = nullptr;
  HookContext* context_ = nullptr;
  allocator::AccessSet set_;
  allocator::AccessSet scratch_;    // of one address
  std::vector<TableSlot> found_;    // addresses that the call puts into device memory
  std::vector<Piece> overwritten_;  // where addresses may have lain
};

// One hooked call on this thread. Not entered: the call comes from inside another hooked call (ours or the
// driver's), or before any block exists, and must pass through.
class HookScope {
 public:
  HookScope();
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
  // Null when not entered.
  Touch* touch() const { return touch_; }

 private:
  Touch* touch_ = nullptr;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_ACCESS_SET_BUILDER_H_
