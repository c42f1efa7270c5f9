// Allocations: the blocks of one device as the application sees them, which are handed out, recorded on
// streams, and freed in every state of a transfer. DeviceResidency calls it. Any thread may call unless a
// method names one. A call may wait for the GPU and the tiers, but never with the lock. An allocation is
// refused when GPU, host and disk together could not hold it.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_ALLOCATIONS_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_ALLOCATIONS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/residency/state/charges.h"
#include "allocator/residency/state/clean_copies.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/free_addresses.h"
#include "allocator/residency/state/launch_log.h"
#include "allocator/residency/transfer/evictor.h"
#include "allocator/residency/transfer/faulter.h"
#include "allocator/residency/transfer/soft_blocks.h"

namespace spillway::allocator {

class Allocations {
 public:
  struct Parts {
    Charges* charges = nullptr;
    FreeAddresses* addresses = nullptr;
    CleanCopies* clean = nullptr;
    const LaunchLog* log = nullptr;
    SoftBlocks* soft = nullptr;
    std::function<void()> wake;  // makes the device's thread look again
  };
  Allocations(Core* core, Parts parts);

  // The methods of Residency with these names. A new block may still be without memory.
  absl::StatusOr<Block*> Allocate(uint64_t bytes, CUstream stream, BlockRegion region);
  absl::Status Free(CUdeviceptr address);
  absl::Status RecordStream(CUdeviceptr address, CUstream stream);
  absl::StatusOr<BlockRange> FindRange(CUdeviceptr address) const;
  // Residency::LargestBlocks.
  std::vector<LargeBlock> Largest(size_t most) const;
  // Residency::PinnedBlocks.
  std::vector<BlockBytes> Pinned() const;

  // Records all work that the stream has been given up to now, through the gate or not, as a use of the
  // block.
  void RecordQueuedWorkLocked(const TableLock& lock, Block* block, StreamIndex stream);

  // ---- Device's thread.

  // Offers freed blocks whose recorded streams have completed the work that was queued on them. Returns true
  // when there was one.
  bool FinishFrees();
  bool frees_wait() const { return frees_wait_; }

 private:
  absl::StatusOr<Block*> TakeBlockLocked(TableLock* lock, uint32_t chunks, CUstream stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  absl::Status AwaitEndOfTransferLocked(TableLock* lock, Block* block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Orders a free after all work that the block's streams have been given.
  void RecordQueuedWorkLocked(const TableLock& lock, Block* block);
  void FreeLocked(const TableLock& lock, Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);

  Core* const core_;
  Charges* const charges_;
  FreeAddresses* const addresses_;
  CleanCopies* const clean_;
  const LaunchLog* const log_;
  SoftBlocks* const soft_;
  const std::function<void()> wake_;
  bool frees_wait_ = false;  // device's thread: freed blocks wait for recorded streams
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_ALLOCATIONS_H_
