// Mutants by name: rules of the product that are left out on purpose (allocator/memory/test_points.h). The
// simulation must find each of them, or it would not find the mistake either. One at a time, set before the
// run.

#ifndef SPILLWAY_TESTS_SIMULATION_MUTANTS_H_
#define SPILLWAY_TESTS_SIMULATION_MUTANTS_H_

#include <string>
#include <vector>

namespace spillway::simulation {

std::vector<std::string> AllMutants();
// Whether it is a rule of pauses and resumes.
bool IsOfPauses(const std::string& name);
// False when there is none of that name.
bool SetMutant(const std::string& name);

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_MUTANTS_H_
