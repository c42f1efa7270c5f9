// MachineBlocks: the blocks of a simulated job, their places, memory and transfers. Whole blocks move, one at
// a time in each direction of the host's link and of the disk, at rates that share PCIe. It decides nothing:
// its callers (BlockMachine, and tests of whole streams) choose the blocks that leave and return. One thread;
// nothing fails.
//
// Blocks go to the disk where host memory is full. Several drives count as one with the sum of their rates.
// Reads and writes of the disk do not slow each other down.

#ifndef SPILLWAY_POLICY_SIMULATOR_MACHINE_BLOCKS_H_
#define SPILLWAY_POLICY_SIMULATOR_MACHINE_BLOCKS_H_

#include <array>
#include <cstdint>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "policy/model/machine.h"
#include "policy/model/plan_cursor.h"
#include "policy/simulator/execution_stats.h"
#include "policy/simulator/shared_link.h"

namespace spillway::policy {

class MachineBlocks {
 public:
  static constexpr int64_t kNotYet = -1;

  struct Block {
    // kCopyWaits: the block waits to be copied out, and stays. kDraining: a copy out was taken back and has
    // not ended.
    enum class Move : uint8_t { kNone, kCopyWaits, kOut, kDraining, kIn };
    bool live = false;     // used, and not freed by the host
    bool on_gpu = false;   // takes memory there; its content may be on the way
    bool arrived = false;  // the content is there
    bool copy = false;     // good content at `tier`
    bool leaving = false;  // memory is given back when a copy is there, unless a launch names it first
    bool dead = false;     // freed by the host; the GPU may not be through with it
    Move move = Move::kNone;
    PlanTier tier = PlanTier::kHost;  // of the copy, or of the one that is made
    // Launches of the host, from 0.
    int64_t last_use = kNotYet, last_write = kNotYet;
  };

  // `bytes`: of each block. `machine` and `metrics` must outlive the object.
  MachineBlocks(std::vector<Bytes> bytes, const Machine& machine, ExecutionStats* metrics);

  const Block& at(uint32_t block) const { return blocks_[block]; }
  Bytes BytesOf(uint32_t block) const { return bytes_[block]; }
  Bytes free() const { return machine_.gpu_bytes - used_; }
  Bytes leaving() const { return leaving_; }  // that will be free when the leaving blocks have left
  Bytes peak() const { return peak_; }
  Bytes peak_host() const { return peak_host_; }
  const std::vector<uint32_t>& on_gpu() const { return on_gpu_; }
  // Whether something is on its way from the tier or may come from there.
  bool Busy(PlanTier tier) const { return link_busy_[InOf(tier)] || !fetches_[Of(tier)].empty(); }
  bool AnyAway(PlanTier tier) const { return away_[Of(tier)] != 0; }
  bool WritesDisk() const { return link_busy_[OutOf(PlanTier::kDisk)]; }
  double RateOut(PlanTier tier) const { return rates_[OutOf(tier)]; }
  // The block as a PlanCursor sees it, and the moves of one. Launches before `completed` have completed.
  PlanBlockView ViewOf(uint32_t block, int64_t completed) const;
  bool Move(PlanMove move, uint32_t block, PlanTier tier);

  // Makes the block live and away, at the start of the job.
  void PlaceAway(uint32_t block);
  // The host lets launch `launch` go, which names the block. An eviction or copy of it that is under way is
  // taken back. The caller has made sure that there is memory. True when the launch waits for the block's
  // bytes.
  bool Use(uint32_t block, int64_t launch, bool writes);
  // The GPU begins a kernel that writes the block: copies elsewhere are of no use.
  void Overwritten(uint32_t block) { Spoil(block); }
  // The host has freed the block.
  void Free(uint32_t block);
  // Gives back the memory of freed blocks whose last launch has completed; launches before `completed` have.
  void ReleaseDead(int64_t completed);

  // Evicts the block, which has arrived and is not moving. Copies are made in the order of `wanted`.
  void Leave(uint32_t block, PlanTier tier, int64_t wanted);
  // Copies the block out; it stays on the GPU.
  void CopyOut(uint32_t block, PlanTier tier);
  // Fetches the block, which is away, and takes its memory now.
  void Fetch(uint32_t block);

  // Begins the transfers that may begin. True when one has begun.
  bool Start(Nanos now);
  void Arrange(Nanos now) { link_.Arrange(now); }
  // When the next transfer ends or changes its rate; `latest` when nothing comes before it.
  Nanos NextEvent(Nanos latest) const;
  // Ends the transfers that end now. `iteration`: of the GPU, for recorded events.
  void Advance(Nanos now, uint32_t iteration);

 private:
  using Queue = SharedLink::Queue;
  static constexpr size_t kQueues = 4;
  static size_t Of(PlanTier tier) { return static_cast<size_t>(tier); }
  static Queue OutOf(PlanTier tier) { return Of(tier); }
  static Queue InOf(PlanTier tier) { return 2 + Of(tier); }

  void TakeMemory(uint32_t block);
  void GiveMemory(uint32_t block);
  void Drop(uint32_t block);
  void Spoil(uint32_t block);
  void StopLeaving(Block* block, uint32_t id);
  void SetCopy(uint32_t block, bool copy);
  void CountAway(const Block& block, int change);
  bool StartOut(PlanTier tier, Nanos now);
  bool BeginOut(uint32_t block, PlanTier tier, Nanos now);
  bool StartIn(PlanTier tier, Nanos now);
  bool Begin(Queue queue, uint32_t block, Nanos now);
  void Ended(Queue queue, Nanos now);
  void EndedOut(uint32_t block);

  const std::vector<Bytes> bytes_;
  const Machine& machine_;
  ExecutionStats& metrics_;
  std::array<double, kQueues> rates_;  // asked for, by queue
  SharedLink link_;
  std::array<bool, kQueues> link_busy_ = {};
  std::array<uint32_t, kQueues> under_way_ = {};              // the block of each queue that is busy
  std::array<std::vector<ScheduleEvent>, kQueues> segments_;  // of it, so far
  std::vector<Block> blocks_;
  std::vector<uint32_t> on_gpu_, place_on_gpu_;  // in any order; by block, its place there
  std::vector<uint32_t> dead_;
  std::array<std::set<std::pair<int64_t, uint32_t>>, 2> evictions_;  // by tier: when wanted, block
  std::array<std::deque<uint32_t>, 2> copies_, urgent_, fetches_;    // by tier
  std::array<uint32_t, 2> away_ = {};                                // blocks, by tier
  Bytes used_ = 0, leaving_ = 0, host_used_ = 0, peak_ = 0, peak_host_ = 0;
  Nanos now_ = 0;
  uint32_t iteration_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_MACHINE_BLOCKS_H_
