// Reach: blocks whose last extents lie in host memory while launches use them. Kernels reach these over the link: slower
// than the device's memory by far, and right. Serves a launch whose blocks do not fit the GPU together, where the host
// tier is made of handles (HostReach). A block's reached extents are buffers of the host tier, mapped behind its chunks
// (Block::MappingSide::reached). Its gate is closed meanwhile: each launch that names it comes to the ClaimQueue, which
// has it leave and come back whole as soon as that fits.
//
// A buffer changes its role and not its bytes: where an extent's bytes lie in host memory when the block is fetched, that
// buffer is mapped; when the block leaves, the buffer is the extent's home. So nothing is copied for a reached extent
// that comes from, or goes to, the host tier. All under the lock of the block table, on any thread. A take fails when the
// host tier has no buffers free.

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
  // Extents of a block that are to be reached: its last ones.
  struct Part {
    Block* block = nullptr;
    uint32_t extents = 0;
  };

  Reach(Core* core, CleanCopies* clean) : core_(core), clean_(clean) {}

  // Whether kernels can reach the host tier.
  bool on() const { return core_->parts.host != nullptr && core_->parts.host->reachable(); }

  // Chooses `extents` of these blocks, which have no chunks, or all that they have. Of a kernel with one pass those first
  // that lie in host memory already: reaching them costs what fetching them would. Of one with many passes those first
  // that have no bytes yet, its results, which are written once; of one that updates in place those last. Then the
  // largest, so that few blocks are reached.
  static std::vector<Part> ChooseLocked(const TableLock& lock, std::vector<Block*> lacking, uint64_t extents,
                                        KernelPasses passes);
  // Takes the buffers that these parts need beside those in which their bytes lie already. False, and nothing is taken,
  // when the host tier has too few free: `lacking` says how many it lacks.
  bool TakeLocked(const TableLock& lock, const std::vector<Part>& parts, std::vector<PinnedBuffer>* buffers,
                  uint64_t* lacking);
  // Makes the part the block's, which has no chunks and nobody maps. False, and nothing has changed, when `buffers`,
  // out of which it is served, are too few: the block is another than it was.
  bool AssignLocked(const TableLock& lock, const Part& part, std::vector<PinnedBuffer>* buffers);
  void GiveLocked(const TableLock& lock, std::vector<PinnedBuffer>* buffers);

  // The mapping of the block has failed or was taken back: its extents are where they were.
  void TakeBackLocked(const TableLock& lock, Block* block);
  // The block's bytes have arrived: what is reached is no home any more.
  void SettleLocked(const TableLock& lock, Block* block);
  // The block has been unmapped, and holds nothing worth keeping.
  void DropLocked(const TableLock& lock, Block* block);
  // The block has been unmapped: appends the homes of its reached extents to those of the others.
  void LeaveLocked(const TableLock& lock, Block* block, std::vector<ExtentHome>* homes);

  // Counts a launch that reached extents of these blocks, which are pinned; the first one gets a line, with advice
  // unless that is empty. No lock.
  void NoteLaunch(const std::vector<Block*>& pinned, uint64_t tag, absl::FunctionRef<std::string()> advice);

 private:
  void SetLocked(const TableLock& lock, Block* block, std::vector<PinnedBuffer> reached);

  Core* const core_;
  CleanCopies* const clean_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_REACH_H_
