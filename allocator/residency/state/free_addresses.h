// FreeAddresses: the addresses of one device that may be handed out, and those of freed blocks that may not yet. An
// address is kept with its block, so that equal iterations get equal addresses, until nobody has taken it for long; then
// it is free space again and the block's record serves another. Every thread, under the table's lock. Create alone can
// fail: when the device's address space is used up.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_FREE_ADDRESSES_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_FREE_ADDRESSES_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "allocator/memory/block_allocator.h"
#include "allocator/memory/va_space.h"
#include "allocator/residency/state/block_table.h"
#include "allocator/residency/state/residency_options.h"

namespace spillway::allocator {

// How an allocation was served. Counted, for tests.
enum class AllocationPath : int { kCachedSameStream, kKeptAddress, kNewAddress, kCount };

class FreeAddresses {
 public:
  FreeAddresses(const ResidencyOptions& options, const ResidencyParts& parts, BlockTable* table);

  // ---- Handing out.

  // The block of that size with the lowest address that this stream may reuse, out of the list; null: none. It may still
  // be on its way out or in.
  Block* Take(const TableLock& lock, uint32_t chunks, CUstream stream);
  // A new block, kFree, owned by the stream. Gives kept addresses up when there are no others.
  absl::StatusOr<Block*> Create(const TableLock& lock, uint32_t chunks, CUstream stream);
  // The block is about to be live.
  void NoteHandedOut(const TableLock& lock, AllocationPath path);
  // It is about to be freed.
  void NoteTakenBack(const TableLock& lock, Block* block);

  // ---- Coming back.

  // Enters the block into the list of reusable addresses.
  void List(const TableLock& lock, Block* block);
  // A free that must wait for a transfer: the address may be promised already, the block not, so that equal iterations
  // get equal addresses, which prediction wants. A block that recordStream keeps is not promised: nobody should wait for
  // another stream's work in an allocation.
  void BeginFree(const TableLock& lock, Block* block);
  // The transfer has ended, and the block is kCached or kFree.
  void FinishFree(const TableLock& lock, Block* block);
  // A freed block, kCached or kFree, may be handed out again: at once, or when its recorded streams are done.
  void Offer(const TableLock& lock, Block* block);
  // Whether freed blocks wait for recorded streams. FinishRecorded offers those of which `done` says so of each use; true
  // when there was one.
  bool recorded_wait(const TableLock& lock) const;
  bool FinishRecorded(const TableLock& lock, absl::FunctionRef<bool(const Stamp&)> done);

  // ---- Figures.

  uint64_t frees(const TableLock& lock) const;
  uint64_t paths(const TableLock& lock, AllocationPath path) const;
  void CheckInvariants(const TableLock& lock) const;

 private:
  void Enter(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Kept addresses that nobody has taken for long are free space again: what is kept follows what is live, not what has
  // ever been allocated.
  void GiveUpOld(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // A kFree block's address goes back to the space of addresses, its record to the table. False when somebody still has
  // to do with it.
  bool GiveUp(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);

  BlockTable* const table_;
  const size_t most_kept_;  // four more for each live block
  BlockAllocator listed_ ABSL_GUARDED_BY(table_->mu);
  VaSpace space_ ABSL_GUARDED_BY(table_->mu);
  std::vector<Block*> waiting_ ABSL_GUARDED_BY(table_->mu);  // freed, recorded on streams that are not done
  uint64_t handed_out_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t frees_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t paths_[static_cast<int>(AllocationPath::kCount)] ABSL_GUARDED_BY(table_->mu) = {};
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_FREE_ADDRESSES_H_
