// Job: what a random application does in a World: threads that allocate, launch, copy and free. Each block's
// words are a function of a version that the job knows: every kernel compares what it reads and writes a new
// version, and what is copied to the host is compared there.

#ifndef SPILLWAY_TESTS_SIMULATION_JOB_H_
#define SPILLWAY_TESTS_SIMULATION_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/random.h"
#include "tests/simulation/world.h"

namespace spillway::simulation {

struct JobSettings {
  int threads = 2;
  int streams = 2;        // of each thread
  int operations = 1000;  // of all threads
  uint64_t most_set = 4;  // chunks of one launch
  uint64_t most_block = 2;
  uint32_t most_blocks = 24;         // of each thread
  uint32_t seek_leaving_one_in = 0;  // launches that look for a block on its way out; 0: none
  uint32_t evict_one_in = 0;         // operations before which a block is evicted or copied out; 0: none
  uint32_t plan_one_in = 0;          // operations that change the plan
  // Faults, until half of the operations are done. Those of a drive are waited for; with others launches and
  // allocations may be refused.
  bool disk_faults = false;
  bool chunk_faults = false;
  bool poison = false;      // the device fails for good, at a random time
  bool wait_limit = false;  // of the world: a wait may end in a refusal
  bool caps = false;        // the job limits its own memory, below what its launches need, too
  bool MayRefuse() const { return chunk_faults || poison || wait_limit || caps; }

  static JobSettings Draw(Random* random, const WorldSettings& world, int operations);
  std::string Describe() const;
};

struct JobCounts {
  uint64_t operations = 0, launches = 0, refused_launches = 0, refused_allocations = 0;
  uint64_t evictions = 0, cancelled = 0, faults = 0, clean_drops = 0, early_copies = 0, disk_bytes = 0;
  void Add(const JobCounts& other);
};

// Runs all threads to their end, inside a simulation. Fails the simulation when anything is wrong.
JobCounts RunJob(World* world, const JobSettings& settings, Random* random);

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_JOB_H_
