// SoftBlocks: spilled blocks whose addresses map the host memory in which their bytes lie, where SPILLWAY_REACH is on. A
// kernel that has such an address from elsewhere than its parameters uses these bytes over the link, and they count. The
// Evictor maps a block so when all of its homes are in host memory, the Faulter takes it away when the block comes back;
// each does so in a standstill, so that no kernel finds the address unmapped or the bytes half moved.
//
// Here a mapping is taken away that is to go for another reason: the block was freed, its bytes are to go to the disk, or
// are dropped by a pause. A mapping that fails leaves the block spilled as any other.

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

  // Maps the host memory of the block, of which all is at `homes` and in `memory.reached`, at its address. Its chunks have
  // been unmapped, `mapping` is set, in a standstill. False: nothing is mapped.
  bool Map(const Block& block, const std::vector<ExtentHome>& homes);
  // Goes on with what was asked for. True when something changed.
  bool Poll();
  bool idle() const { return jobs_.empty(); }

  // ---- Under the lock.

  // Has the mapping of a soft block taken away; nothing to do where that was asked for. A fetch that begins before does
  // it itself. Of a freed block the homes are then given back, and its free is finished. Any thread.
  void EndLocked(const TableLock& lock, Block* block);

 private:
  struct Job {
    Block* block = nullptr;
    int64_t began = 0;                // nanoseconds of the system's steady clock
    std::vector<TimelineValue> uses;  // of a freed block
    bool freed = false;
    bool still = false;  // in a standstill, for one that is not freed
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
