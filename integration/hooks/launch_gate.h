// LaunchGate: between a wrapper that has collected what a call touches and the real call. It asks the
// Residency of each device concerned, holds what must stay, and repeats calls that ran out of memory. It
// decides nothing about blocks itself.

#ifndef SPILLWAY_INTEGRATION_HOOKS_LAUNCH_GATE_H_
#define SPILLWAY_INTEGRATION_HOOKS_LAUNCH_GATE_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "allocator/memory/address_map.h"
#include "allocator/memory/block_id.h"
#include "integration/hooks/hook_context.h"

namespace spillway::integration {

using RealCall = absl::FunctionRef<CUresult()>;

// What one call touches, gathered by a collector. Lives in the thread's scratch: no allocation in the steady
// state.
class Touch {
 public:
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
  // Bytes of device memory that a call writes: addresses of ours may be among them, to be followed by a kernel that
  // names only the table, and what was known to lie there is gone. Their targets are held before the call.
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

// The set is made resident, `real` called on `stream`, the use stamped. An empty set: `real` alone, repeated
// once after chunks were given back when it ran out of memory. A captured launch holds its set instead.
CUresult PassGate(Touch* touch, allocator::StreamRef stream, RealCall real);

// Makes `touch`'s set, and what the call lets be found in device memory, resident and holds it, then `real`.
// CUDA_ERROR_OUT_OF_MEMORY when it could not be held. `ticket`: the holds, ended here when `real` fails; null: until
// the blocks are freed.
CUresult PassHolding(Touch* touch, allocator::HoldReason reason, HoldTicket* ticket, RealCall real);
inline CUresult PassHolding(Touch* touch, allocator::HoldReason reason, RealCall real) {
  return PassHolding(touch, reason, nullptr, real);
}

// For a kernel whose addresses are known to be missed by the scan: whatever it names stays from now on. Called by the
// collector of its launch; false when that could not be, and the launch must be refused.
bool HoldDenied(Touch* touch, const char* kernel);

// Our block is about to be freed: the addresses that it carries keep nothing any more. Before Residency::Free.
void NoteBlockFreed(uint64_t address);
// Memory of others is gone: after the real call. `users`: what may still read it.
void NoteForeignFreed(uint64_t address, uint64_t bytes, const allocator::HiddenUsers& users);

// `real`, which may reach any block and names none that could be seen: all live blocks of every device are resident for
// it, or it is refused with out-of-memory.
CUresult CallReachingAll(HookState* state, allocator::StreamRef stream, uint64_t tag, RealCall real);

// `real`, and once more when it ran out of memory and chunks could be given back. `bytes`: what it asked for,
// or 0.
CUresult CallOthers(HookState* state, uint64_t bytes, RealCall real);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_LAUNCH_GATE_H_
