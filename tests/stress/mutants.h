// Mutants of the store by name (io/test_points.h). The stress must find each of them, or it would not find the
// mistake either. One at a time, set before the run.

#ifndef SPILLWAY_TESTS_STRESS_MUTANTS_H_
#define SPILLWAY_TESTS_STRESS_MUTANTS_H_

#include <string>
#include <vector>

namespace spillway::stress {

std::vector<std::string> AllMutants();
// False when there is none of that name.
bool SetMutant(const std::string& name);

}  // namespace spillway::stress

#endif  // SPILLWAY_TESTS_STRESS_MUTANTS_H_
