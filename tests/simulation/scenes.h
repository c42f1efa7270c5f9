// Scenes: small situations of two or three tasks, whose schedules are all gone through up to a number of
// departures from the plain one. A departure is a preemption, or another choice of who goes on where the
// current task cannot.

#ifndef SPILLWAY_TESTS_SIMULATION_SCENES_H_
#define SPILLWAY_TESTS_SIMULATION_SCENES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/simulation/stage.h"

namespace spillway::simulation {

struct Scene {
  const char* name;
  // Whether the device has a disk, a hash, a kernel with membarrier.
  WorldSettings settings;
  std::function<void(Stage*)> act;
};

const std::vector<Scene>& AllScenes();
// Those of pause_scenes.cc, which AllScenes ends with.
std::vector<Scene> PauseScenes();

struct SceneCounts {
  uint64_t points = 0;  // switch points at which somebody else could have gone on, of the plain schedule
  uint64_t schedules = 0;
  bool all = true;  // that there are, not a sample
};

// Goes through all schedules of the scene with at most `departures`. Of each number of departures with more
// than `most` schedules it plays so many, drawn by `sample` evenly over those with one departure less; 0: all.
// Ends the process at the first failure, with the command that replays it.
SceneCounts GoThrough(const Scene& scene, int departures, uint64_t most, uint64_t sample);
// Plays the scene with a schedule drawn by each seed. Ends the process at the first failure, likewise.
void GoThroughSeeds(const Scene& scene, uint64_t first, uint64_t last);
// One schedule, as a failure names it: "12:1,40:2".
void Replay(const Scene& scene, const std::string& schedule);

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_SCENES_H_
