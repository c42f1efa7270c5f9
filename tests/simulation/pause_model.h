// PauseModel: what a job knows of its pauses, and what must hold of them. Its tasks pause and resume through
// it, and ask it about the blocks of each launch. All is known by calls that have begun and returned,
// whatever the product's own records say. What is wrong ends the run.

#ifndef SPILLWAY_TESTS_SIMULATION_PAUSE_MODEL_H_
#define SPILLWAY_TESTS_SIMULATION_PAUSE_MODEL_H_

#include <cstdint>
#include <map>
#include <vector>

#include "allocator/residency/state/pause.h"
#include "tests/simulation/world.h"

namespace spillway::simulation {

class PauseModel {
 public:
  // `may_fail`: faults are injected, so that a pause or a resume may return an error, and bytes may stay.
  PauseModel(World* world, bool may_fail) : world_(*world), may_fail_(may_fail) {}

  // ---- Blocks. `since`: changes() before the allocation.

  uint64_t changes() const { return changes_; }
  uint64_t pauses() const { return pauses_; }  // that have returned well
  void OnAllocate(CUdeviceptr address, allocator::BlockRegion region, uint64_t since);
  void OnFree(CUdeviceptr address) { blocks_.erase(address); }

  // ---- Pauses. Any task; they wait as the product's do.

  void Pause(const allocator::PauseScope& scope);
  void Resume(const allocator::PauseScope& scope, bool wait);
  // Whether the job itself may have paused something.
  bool job_pauses() const;
  // Whether the job may have paused that block.
  bool MayBePaused(CUdeviceptr address) const;

  // ---- Launches.

  // Whether a pause may have dropped the block's bytes since `drops` was last set here; sets it.
  bool Dropped(CUdeviceptr address, uint64_t* drops) const;
  // At the launch's own call of the driver: no block of it is paused. A pause that has returned has waited
  // for every launch that was on its way.
  void AtLaunch(CUdeviceptr address) const;

  // What was away when its pause returned is away still.
  void CheckAway() const;

 private:
  struct Entry {
    allocator::BlockRegion region;
    uint64_t born = 0;    // changes_ after the allocation
    uint8_t paused = 0;   // bits of PausedBy, by pauses that have returned; no resume has begun since
    uint8_t touched = 0;  // the same, by pauses that have begun; no resume has returned since
    uint64_t drops = 0;   // begins and ends of pauses that may drop its bytes
    bool away = false;    // it had no chunks when such a pause returned
  };
  static bool Covers(const allocator::PauseScope& scope, const Entry& entry) {
    return scope.tag == 0 || scope.tag == entry.region.tag;
  }
  allocator::Block& RecordOf(CUdeviceptr address) const;
  // Marks the blocks of a pause that has returned at `since` changes, and looks at what it has left.
  void OnPaused(const allocator::PauseScope& scope, const allocator::PauseStats& stats, uint64_t since);
  void OnTakenBack(const allocator::PauseScope& scope);
  void CheckGivenBack(const allocator::PauseStats& stats) const;
  void CheckFailed(const allocator::PauseStats& stats) const;

  World& world_;
  const bool may_fail_;
  std::map<CUdeviceptr, Entry> blocks_;
  std::vector<const allocator::PauseScope*> under_way_;  // pauses that have not returned
  uint64_t changes_ = 0;                                 // pauses and resumes that have begun or returned
  uint64_t pauses_ = 0;
  uint64_t last_resume_ = 0;    // changes_ when one began or returned last
  int resuming_ = 0;            // resumes that have not returned
  bool outside_touches_ = false;  // a pause of everything from outside has begun, and no resume has returned
  uint64_t outside_since_ = 0;  // changes_ when a pause of everything from outside returned; 0: it is over
};

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_PAUSE_MODEL_H_
