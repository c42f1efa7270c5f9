// Scenes of the memory core, each the least work in which one of its ways is gone: a growth of the tiers, an eviction, a
// fault, and so on. A scene is played in a process of its own, with one call made to fail (tests/fakes/failing_calls.h), and
// says what came of it.

#ifndef SPILLWAY_TESTS_ALLOCATOR_EVERY_CALL_SCENES_H_
#define SPILLWAY_TESTS_ALLOCATOR_EVERY_CALL_SCENES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fakes/failing_calls.h"

namespace spillway::allocator {

struct Failure {
  std::string call;  // empty: none, the calls are counted
  uint64_t nth = 0;
  fakes::FailMode mode = fakes::FailMode::kNone;
  std::string point;  // not empty: SIGKILL at this delay point instead
};

// What a played scene found, by way of a pipe.
struct Report {
  bool reached = false;               // the call that was to fail came
  std::string outcome;                // "success", or the first refusal's words
  std::vector<std::string> problems;  // what must not be
  std::vector<fakes::CallCount> counts;
};

std::vector<std::string> SceneNames();

// Plays it in this process, which must not have used the driver. Spill files lie in `directory`.
Report PlayScene(const std::string& name, const std::string& directory, const Failure& failure);

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_EVERY_CALL_SCENES_H_
