// Scenes of the memory core, each the least work in which one of its ways is gone: a growth of the tiers, an
// eviction, a fault, and so on. A scene is played in a process of its own, with one call made to fail
// (tests/fakes/failing_calls.h), and says what came of it.

#ifndef SPILLWAY_TESTS_ALLOCATOR_EVERY_CALL_SCENES_H_
#define SPILLWAY_TESTS_ALLOCATOR_EVERY_CALL_SCENES_H_

#include <string>
#include <vector>

#include "tests/allocator/every_call_stage.h"

namespace spillway::allocator {

std::vector<std::string> SceneNames();

// Plays it in this process, which must not have used the driver. Spill files lie in `directory`.
Report PlayScene(const std::string& name, const std::string& directory, const Failure& failure);

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_EVERY_CALL_SCENES_H_
