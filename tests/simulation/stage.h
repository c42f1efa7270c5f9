// Stage: the world of a scene, and what its tasks do there. Blocks are numbered; each is written by the
// launch that makes it.

#ifndef SPILLWAY_TESTS_SIMULATION_STAGE_H_
#define SPILLWAY_TESTS_SIMULATION_STAGE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/simulation/contents.h"
#include "tests/simulation/world.h"

namespace spillway::simulation {

class Stage {
 public:
  Stage(const WorldSettings& settings, Random* random);

  World& world() { return world_; }
  // A block of that many chunks on that stream, written once unless `unused`.
  size_t Make(uint64_t chunks, CUstream stream, bool unused = false, allocator::BlockRegion region = {});
  // A launch on these blocks through the gate, which compares and writes each. False: refused, which fails
  // the run unless the device has an error or it `may_refuse`.
  bool Launch(CUstream stream, const std::vector<size_t>& blocks, bool write = true, bool may_refuse = false);
  // A launch through the gate whose kernel takes so long.
  void LaunchFor(CUstream stream, size_t block, int64_t nanos);
  // A kernel that reads the block after so long, and did not come through the gate.
  void ReadUnseen(CUstream stream, size_t block, int64_t nanos = 0);
  void Free(size_t block);
  // Its bytes are not known any more.
  void Forget(size_t block) {
    blocks_[block].version = 0;
    ++blocks_[block].forgets;
  }
  allocator::Block& Record(size_t block);
  CUdeviceptr AddressOf(size_t block) const { return blocks_[block].address; }
  // Starts taking the block off the GPU, if it may leave.
  void Evict(size_t block, policy::PlanTier tier = policy::PlanTier::kHost);
  void CopyOut(size_t block);
  // Sleeps for up to 50 us.
  void SomeTime();
  // Returns when nothing of the device's thread is under way.
  void Settle();
  // Compares every block that is left.
  void CompareAll();
  CUstream NewStream() { return world_.gpu().NewStream(); }
  // Tasks that take part, from Play on until all have ended.
  void Play(const std::vector<std::function<void()>>& parts);

 private:
  struct Made {
    CUdeviceptr address = 0;
    uint64_t bytes = 0;
    uint64_t version = 0;
    CUstream stream = nullptr;
    bool live = true;
    uint64_t forgets = 0;
  };

  Random* const random_;
  World world_;
  std::vector<Made> blocks_;
  uint64_t last_version_ = 0;
};

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_STAGE_H_
