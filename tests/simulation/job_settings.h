// JobSettings: what a random job is like, drawn by its seed. JobCounts: what runs together have done. Plain
// data, read by the job and by who starts it.

#ifndef SPILLWAY_TESTS_SIMULATION_JOB_SETTINGS_H_
#define SPILLWAY_TESTS_SIMULATION_JOB_SETTINGS_H_

#include <cstdint>
#include <string>

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
  bool hides = false;       // kernels use blocks that their launches do not name
  bool large_sets = false;  // blocks and launches that the GPU cannot take alone
  bool disk_faults = false;
  bool chunk_faults = false;
  bool poison = false;          // the device fails for good, at a random time
  bool wait_limit = false;      // of the world: a wait may end in a refusal
  bool caps = false;            // the job limits its own memory, below what its launches need, too
  uint32_t pause_one_in = 0;    // operations of a job that pauses and resumes itself; 0: it does not
  bool outside_pauses = false;  // somebody else pauses and resumes it, too
  bool idle = false;            // it gives up its share of the device now and then
  bool signals = false;         // and launches that wait then are refused now and then
  bool Pauses() const { return pause_one_in != 0 || outside_pauses || idle; }
  bool MayFail() const { return disk_faults || chunk_faults || poison || wait_limit; }
  bool MayRefuse() const { return chunk_faults || poison || wait_limit || caps; }

  static JobSettings Draw(Random* random, const WorldSettings& world, int operations);
  std::string Describe() const;
};

struct JobCounts {
  uint64_t operations = 0, launches = 0, refused_launches = 0, refused_allocations = 0;
  uint64_t evictions = 0, cancelled = 0, faults = 0, clean_drops = 0, early_copies = 0, disk_bytes = 0;
  uint64_t pauses = 0, reached_launches = 0, soft_evictions = 0, hidden_uses = 0;
  uint64_t verified_fetches = 0, wrong_arrivals = 0;
  void Add(const JobCounts& other);
};

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_JOB_SETTINGS_H_
