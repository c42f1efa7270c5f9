// AccessSetBuilder finds the access set of one driver call, and the effects of the call on the addresses that
// are known to lie in device memory. The wrapper of the call opens a HookScope. The readers of its arguments
// (copy_access_sets.h, launch_access_sets.h) add what the arguments name, and the gate acts on the result.
// All of this happens on the thread of the call. It cannot fail: a driver call that is not understood is
// marked as one that may reach every block.

#ifndef SPILLWAY_INTEGRATION_HOOKS_ACCESS_SET_BUILDER_H_
#define SPILLWAY_INTEGRATION_HOOKS_ACCESS_SET_BUILDER_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "allocator/memory/address_map.h"
#include "allocator/memory/block_id.h"
#include "integration/hooks/hook_context.h"

namespace spillway::integration {

// Returns an argument as an address; 0 if it is neither a pointer nor an integer. An integer of less than 64
// bits cannot be an address of ours.
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

// Each thread has one builder, which its calls use in turn, so that nothing is allocated in the steady state.
class AccessSetBuilder {
 public:
  // A table of pointers is small; larger copies are data.
  static constexpr uint64_t kLargestPointerTable = 64 * 1024;

  // Clears the builder for another call.
  void Begin(HookState* hook_state, HookContext* hook_context);
  HookState* state() const { return state_; }
  HookContext* context() const { return context_; }
  const allocator::AddressMap& map() const { return *context_->addresses; }

  // Adds the block at a device address. A host address adds nothing, since it is never ours. An address one
  // past the end of a block counts as the block's.
  void Address(uint64_t address) { context_->addresses->Collect(address, &set_); }
  // Adds the blocks of a range that is read or written; none if the range is empty.
  void Range(uint64_t address, uint64_t bytes) {
    if (bytes != 0 && context_->addresses->Contains(address))
      context_->addresses->CollectRange(address, bytes, &set_);
  }
  // Adds the blocks of ranges that were blocks of ours once. The ranges are in order of address, and the set
  // is empty before.
  void Blocks(const std::vector<allocator::BlockRange>& ranges);
  // Adds the blocks of `rows` runs of `width` bytes, `pitch` bytes apart.
  void PitchedRange(uint64_t address, uint64_t pitch, uint64_t width, uint64_t rows) {
    if (width != 0 && rows != 0) Range(address, (rows - 1) * pitch + width);
  }
  // Adds the blocks of a range that the call may read before its stream gets there (PassEarlyReads).
  void EarlyRange(uint64_t address, uint64_t bytes) {
    Range(address, bytes);
    if (bytes != 0 && map().Contains(address)) map().CollectRange(address, bytes, &early_);
  }
  // Records that the call writes these bytes of device memory: the addresses that were known to lie there are
  // gone. The two forms below also look for addresses of ours among the bytes that are written, since a
  // kernel may follow them and name only the table. Their targets are pinned before the call.
  void Writes(uint64_t address, uint64_t bytes) {
    if (bytes != 0 && state_->tables.MayOverlap(address, bytes)) overwritten_.push_back({address, bytes});
  }
  // Like Writes, from host memory that can be read. The source is scanned if it is small enough for a table.
  void WritesFromHost(uint64_t address, const void* source, uint64_t bytes);
  // Like Writes, from device memory: the addresses that are known to lie at `source` are copied.
  void WritesFromDevice(uint64_t address, uint64_t source, uint64_t bytes);
  // Records that the launch's kernel writes the addresses of what the launch names into a table at `address`.
  // `fills`: the kernel leaves nothing of an earlier launch there. The set must be complete by then.
  void KernelWrites(uint64_t address, bool fills);
  // Records that it is not known what the call touches: no eviction starts from now on, and this call needs
  // every block. `reason` is a text for the user.
  void NotUnderstood(const char* reason) {
    SwitchEvictionOff(state_, reason);
    reaches_all = may_block = true;  // may_block, so that ordinary launches need not look at reaches_all
  }
  // Records that the call launches a kernel whose handle no hook has seen: this launch needs every block.
  // Evictions go on, unless the launch goes into a graph (the gate ends them then).
  void OfUnknownOrigin();
  // Records that the call launches a kernel whose parameters the driver could not report now. The effect is
  // that of OfUnknownOrigin.
  void Unanswered(const FunctionInfo& info);

  allocator::AccessSet& set() { return set_; }
  const allocator::AccessSet& early() const { return early_; }
  // Returns whether the call changes what is known of addresses in device memory.
  bool rewrites() const { return !found_.empty() || !overwritten_.empty(); }
  const std::vector<TableEntry>& found() const { return found_; }
  struct WrittenRange {
    uint64_t address;
    uint64_t bytes;
    PointerTables::Change change = PointerTables::Change::kOverwritten;
  };
  const std::vector<WrittenRange>& overwritten() const { return overwritten_; }

  // The kernel, if it is in the deny list; null for a writer whose tables are known.
  const FunctionInfo* denied = nullptr;
  const FunctionInfo* nccl = nullptr;  // a kernel of NCCL's whose arguments do not name all that it reaches
  bool reaches_all = false;            // set by NotUnderstood, OfUnknownOrigin and Unanswered
  bool of_unknown_origin = false;
  const FunctionInfo* unanswered = nullptr;
  uint64_t tag = 0;        // of the launch: the row's tag, unless a reader of arguments sets the kernel's
  bool may_block = false;  // it may wait for the GPU: synchronous, or a copy from or to pageable memory

 private:
  HookState* state_ = nullptr;
  HookContext* context_ = nullptr;
  allocator::AccessSet set_, early_;
  allocator::AccessSet scratch_;           // for the blocks of one address
  std::vector<TableEntry> found_;          // addresses that the call puts into device memory
  std::vector<WrittenRange> overwritten_;  // ranges in which addresses may have lain
};

// One hooked call on this thread. The scope is not entered if the call comes from inside another hooked call
// (ours or the driver's), or before any block exists: such a call must pass through.
class HookScope {
 public:
  HookScope();
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
  // Returns the thread's builder; null if the scope was not entered.
  AccessSetBuilder* builder() const { return builder_; }

 private:
  AccessSetBuilder* builder_ = nullptr;
};

// Returns whether this thread is inside a hooked call. A call that it makes now comes from the driver, or
// from a tool that the driver called.
bool InsideHookedCall();

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_ACCESS_SET_BUILDER_H_
