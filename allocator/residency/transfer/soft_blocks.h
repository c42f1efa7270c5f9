// SoftBlocks: spilled blocks whose addresses map the host memory in which their bytes lie, where
// SPILLWAY_REACH is on. A kernel that has such an address from elsewhere than its parameters uses these bytes
// over the link, and its writes count. The Evictor maps a block in this way when all of its homes are in host
// memory, and the Faulter takes the mapping away when the block comes back. Each does so in a standstill, so
// that no kernel finds the address unmapped or the bytes half moved.
//
// This class takes a mapping away for any other reason: the block was freed, its bytes are to go to the disk,
// or a pause drops them. A mapping that fails leaves the block spilled like any other.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_SOFT_BLOCKS_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_SOFT_BLOCKS_H_

#include <functional>
#include <vector>

#include "allocator/residency/state/clean_copies.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/free_addresses.h"

namespace spillway::allocator {

class SoftBlocks {
 public:
  struct Parts {
    FreeAddresses* addresses = nullptr;
    CleanCopies* clean = nullptr;
  };
  // `wake` makes the device's thread call Poll.
  SoftBlocks(Core* core, const Parts& parts, std::function<void()> wake);

  // ---- Device's thread, without the lock.

  // Maps the host memory of the block, all of which is at `homes` and in `memory.reached`, at its address.
  // Its chunks have been unmapped and `mapping` is set; called in a standstill. Returns false when nothing is
  // mapped.
  bool Map(const Block& block, const std::vector<ExtentHome>& homes);
  // Goes on with the mappings that are to be taken away. Returns true when something changed.
  bool Poll();
  bool idle() const { return jobs_.empty(); }

  // ---- Under the lock.

  // Begins to take away the mapping of a soft block; does nothing when that was requested before. A fetch
  // that begins earlier does it itself. For a freed block the homes are then given back, and its free is
  // finished. Any thread.
  void EndLocked(const TableLock& lock, Block* block);

 private:
  struct Job {
    Block* block = nullptr;
    int64_t began = 0;                // nanoseconds of the system's steady clock
    std::vector<TimelineValue> uses;  // of a freed block
    bool freed = false;
    bool still = false;  // in a standstill, for a block that is not freed
    bool over = false;
  };

  void TakeAsked();
  bool Advance(Job* job);
  bool Ready(Job* job);
  void FinishLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);

  Core* const core_;
  FreeAddresses* const addresses_;
  CleanCopies* const clean_;
  const std::function<void()> wake_;

  std::vector<Block*> asked_ ABSL_GUARDED_BY(core_->table.mu);  // since the last Poll
  std::vector<Job> jobs_;                                       // device's thread
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_SOFT_BLOCKS_H_
