// ThreadPauses: how a thread of the random job pauses, resumes and pins, and when its launches may be refused
// for it. StartOthers: who else pauses it.

#ifndef SPILLWAY_TESTS_SIMULATION_THREAD_PAUSES_H_
#define SPILLWAY_TESTS_SIMULATION_THREAD_PAUSES_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "allocator/memory/pin.h"
#include "tests/simulation/job_settings.h"
#include "tests/simulation/pause_model.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {

class ThreadPauses {
 public:
  ThreadPauses(World* world, const JobSettings* settings, PauseModel* model, Random* random)
      : world_(*world), settings_(*settings), model_(*model), random_(*random) {}

  // The region of the next block: three of a job that pauses itself, some of whose bytes are dropped.
  allocator::BlockRegion AnyRegion();
  // Now and then pauses, resumes or pins. True: that was the operation. `block`: one of the thread's;
  // `streams`: where its work is.
  bool Step(CUdeviceptr block, const std::vector<CUstream>& streams);
  void Unpin(const std::vector<CUstream>& streams);

  // Looks at the blocks of a launch before it. After it was refused: whether a pause is a reason.
  void BeforeLaunch(const std::vector<CUdeviceptr>& blocks);
  bool MayBeRefused() const;

 private:
  allocator::PauseScope AnyScope() {
    return {allocator::PausedBy::kJob, random_.OneIn(2) ? 0 : 1 + random_.Below(2)};
  }
  void Pin(CUdeviceptr block);

  World& world_;
  const JobSettings& settings_;
  PauseModel& model_;
  Random& random_;
  std::vector<allocator::PinnedBlock> pinned_;
  // Of the launch under way.
  std::vector<CUdeviceptr> blocks_;
  uint64_t changes_ = 0;
  uint64_t signals_ = 0;
  bool was_paused_ = false;
};

// Starts who else has a hand in the job's memory, as far as the settings have them, until `ended`: somebody
// who pauses all of it and resumes it; and idleness, for which it gives up its share of the device, and has
// it back with or without a launch.
std::vector<Task*> StartOthers(World* world, const JobSettings& settings, PauseModel* model, Random* random,
                               const std::function<bool()>& ended);

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_THREAD_PAUSES_H_
