// What a world may set of the simulated operating system, which stands in the place of io/os (seam/). Set
// before the tasks of a run start.

#ifndef SPILLWAY_TESTS_SIMULATION_OS_H_
#define SPILLWAY_TESTS_SIMULATION_OS_H_

#include <functional>
#include <string>

namespace spillway::simulation {

struct OsSettings {
  bool asymmetric_barrier = true;               // false: a kernel without membarrier
  std::function<void(const std::string&)> say;  // lines of the log
};

OsSettings& settings_of_os();

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_OS_H_
