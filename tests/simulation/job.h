// Job: what a random application does in a World: threads that allocate, launch, copy and free. Each block's
// words are a function of a version that the job knows: every kernel compares what it reads and writes a new
// version, and what is copied to the host is compared there.

#ifndef SPILLWAY_TESTS_SIMULATION_JOB_H_
#define SPILLWAY_TESTS_SIMULATION_JOB_H_

#include "tests/simulation/job_settings.h"
#include "tests/simulation/random.h"
#include "tests/simulation/world.h"

namespace spillway::simulation {

// Runs all threads to their end, inside a simulation. Fails the simulation when anything is wrong.
JobCounts RunJob(World* world, const JobSettings& settings, Random* random);

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_JOB_H_
