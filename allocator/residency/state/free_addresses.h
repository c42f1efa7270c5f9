// FreeAddresses: the addresses of one device that may be handed out, and those of freed blocks that may not
// be handed out yet. An address stays with its block, so that equal iterations get equal addresses. An
// address that was not reused for long becomes free space again, and the block's record serves another
// address. Allocations, Evictor and Faulter call it, on any thread, under the table's lock. Only Create can
// fail, when the device's address space is used up.

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

// The way in which an allocation was served.
enum class AllocationPath : int { kCachedSameStream, kKeptAddress, kNewAddress, kCount };

class FreeAddresses {
 public:
  FreeAddresses(const ResidencyOptions& options, const ResidencyParts& parts, BlockTable* table);

  // ---- Handing out.

  // Takes the block of that size with the lowest address that this stream may reuse out of the list; null for
  // none. The block may still be on its way out or in.
  Block* Take(const TableLock& lock, uint32_t chunks, CUstream stream);
  // Creates a block, in state kFree, owned by the stream. Gives up kept addresses when there are no others.
  absl::StatusOr<Block*> Create(const TableLock& lock, uint32_t chunks, CUstream stream);
  // Called when a block is about to become live.
  void RecordHandedOut(const TableLock& lock) {
    lock.Covers(*table_);
    ++handed_out_;
  }
  // Called when a block is about to be freed.
  void RecordTakenBack(const TableLock& lock, Block* block) {
    lock.Covers(*table_);
    --handed_out_;
    block->allocation.freed_at = ++frees_;
  }

  // ---- Coming back.

  // Enters the block into the list of reusable addresses.
  void List(const TableLock& lock, Block* block);
  // Begins a free that must wait for a transfer. The address may already be promised to an allocation, so
  // that equal iterations get equal addresses, which prediction needs. The address of a block with recorded
  // streams is not promised, because an allocation should not wait for another stream's work.
  void BeginFree(const TableLock& lock, Block* block);
  // Called when the transfer has ended, and the block is kCached or kFree.
  void FinishFree(const TableLock& lock, Block* block);
  // Lets a freed block, kCached or kFree, be handed out again: at once, or when its recorded streams are
  // done.
  void Offer(const TableLock& lock, Block* block);
  // Whether freed blocks wait for recorded streams. FinishRecorded offers the blocks for which `done` is true
  // of every recorded use, and returns whether there was one.
  bool recorded_wait(const TableLock& lock) const {
    lock.Covers(*table_);
    return !waiting_.empty();
  }
  bool FinishRecorded(const TableLock& lock, absl::FunctionRef<bool(const TimelineValue&)> done);

  // ---- Figures.

  uint64_t frees(const TableLock& lock) const {
    lock.Covers(*table_);
    return frees_;
  }
  void CheckInvariants(const TableLock& lock) const;

 private:
  void Enter(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Turns kept addresses that were not reused for long into free space. The number of kept addresses thus
  // follows the live blocks, not all that have ever been allocated.
  void GiveUpOld(const TableLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);
  // Gives a kFree block's address back to the address space and its record to the table. Returns false while
  // a transfer, a pin or an allocation still refers to the block.
  bool GiveUp(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mu);

  BlockTable* const table_;
  const size_t most_kept_;  // four more for each live block
  BlockAllocator listed_ ABSL_GUARDED_BY(table_->mu);
  VaSpace space_ ABSL_GUARDED_BY(table_->mu);
  std::vector<Block*> waiting_ ABSL_GUARDED_BY(table_->mu);  // freed, recorded on streams that are not done
  uint64_t handed_out_ ABSL_GUARDED_BY(table_->mu) = 0;
  uint64_t frees_ ABSL_GUARDED_BY(table_->mu) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_FREE_ADDRESSES_H_
