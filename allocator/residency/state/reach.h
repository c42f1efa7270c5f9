// Reach: blocks whose last extents lie in host memory while launches use them. Kernels reach these extents
// over the link, which is much slower than the device's memory, but right. It serves launches whose blocks do
// not fit the GPU together, where the host tier is made of handles (HostReach). A block's reached extents are
// buffers of the host tier, mapped behind its chunks (Block::MappingSide::reached). The block's gate is
// closed meanwhile: each launch that names it comes to the ClaimQueue, which lets it leave and come back
// whole as soon as that fits.
//
// A buffer changes its role and not its bytes. When a block is fetched, the buffer that is the home of a
// reached extent is mapped at the extent's address. When the block leaves, that buffer becomes the extent's
// home again. Nothing is therefore copied for a reached extent that comes from the host tier or goes to it.
// Everything runs under the lock of the block table, on any thread. Taking buffers fails when the host tier
// has too few free.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_REACH_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_REACH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "allocator/residency/state/clean_copies.h"
#include "allocator/residency/state/core.h"

namespace spillway::allocator {

class Reach {
 public:
  // The extents of a block that are to be reached: its last ones.
  struct Part {
    Block* block = nullptr;
    uint32_t extents = 0;
  };

  Reach(Core* core, CleanCopies* clean) : core_(core), clean_(clean) {}

  // Whether kernels can reach the host tier.
  bool on() const { return core_->parts.host != nullptr && core_->parts.host->reachable(); }

  // Chooses `extents` extents of these blocks, which have no chunks, or all that they have. The order depends
  // on the kernel. A kernel with one pass reaches first the blocks that lie in host memory already: reaching
  // them costs what fetching them would. A kernel with many passes reaches first its results, the blocks that
  // have no bytes yet, because they are written once; one that updates in place reaches those last. Within
  // each group the largest blocks come first, so that few blocks are reached.
  static std::vector<Part> ChooseLocked(const TableLock& lock, std::vector<Block*> lacking, uint64_t extents,
                                        KernelPasses passes);
  // Takes the buffers that these parts need beside those in which their bytes lie already. Returns false, and
  // takes nothing, when the host tier has too few free; `lacking` is the number that it lacks.
  bool TakeLocked(const TableLock& lock, const std::vector<Part>& parts, std::vector<PinnedBuffer>* buffers,
                  uint64_t* lacking);
  // Gives the part to its block, which has no chunks and is not being mapped. The new buffers come out of
  // `buffers`. Returns false, and changes nothing, when they are too few, because the block has changed since
  // they were taken.
  bool AssignLocked(const TableLock& lock, const Part& part, std::vector<PinnedBuffer>* buffers);
  void GiveLocked(const TableLock& lock, std::vector<PinnedBuffer>* buffers);

  // Called when the mapping of the block has failed or was taken back: its extents are where they were.
  void TakeBackLocked(const TableLock& lock, Block* block);
  // Called when the block's bytes have arrived: a reached buffer is no longer a home.
  void SettleLocked(const TableLock& lock, Block* block);
  // Called when the block has been unmapped, and has nothing worth keeping.
  void DropLocked(const TableLock& lock, Block* block);
  // Called when the block has been unmapped: appends the homes of its reached extents to those of the others.
  void LeaveLocked(const TableLock& lock, Block* block, std::vector<ExtentHome>* homes);

  // Counts a launch that reached extents of these blocks, which are pinned. The first such launch writes a
  // line, with advice unless that is empty. Called without a lock.
  void RecordLaunch(const std::vector<Block*>& pinned, uint64_t tag, absl::FunctionRef<std::string()> advice);

 private:
  void SetLocked(const TableLock& lock, Block* block, std::vector<PinnedBuffer> reached);

  Core* const core_;
  CleanCopies* const clean_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_REACH_H_
