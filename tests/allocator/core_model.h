// A random job against the memory core: each block's bytes are a function of a version number that the model
// knows; every kernel and copy checks what it reads and writes a new version. Threads, streams, plans,
// failures and delays are drawn from the seed. What was taken on the way is counted in Coverage.

#ifndef SPILLWAY_TESTS_ALLOCATOR_CORE_MODEL_H_
#define SPILLWAY_TESTS_ALLOCATOR_CORE_MODEL_H_

#include <cstdint>

#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {

// What runs together have taken.
struct Coverage {
  uint64_t prefetches = 0, prefetches_cancelled = 0, pins = 0, streams_destroyed = 0, freed_by_others = 0;
  uint64_t clean_drops = 0, hash_mismatches = 0, early_copies = 0;
  uint64_t pauses_of_all = 0, pauses_of_regions = 0;
  uint64_t host_copies = 0, pinned_launches = 0, injected_disk_faults = 0, refused_launches = 0;

  void Add(DeviceResidency& residency);
  // Prints the table, with the tallies of the process, and returns the smallest count of all that every run
  // must take; a short one need not take back a fetch ahead, since a victim is nearly always there instead.
  uint64_t PrintAndLeast(bool full) const;
};

struct ModelOptions {
  int seed = 1;
  int operations = 1000;
  bool failures = true;  // driver and disk failures, if the seed says so
  bool disk = true;
  uint64_t host_bytes = 0;
  const char* copy_bandwidth = "0";
  uint32_t delay_one_in = 64;  // how often a delay point sleeps
  int blocks_per_thread = 24;
  bool hash = true;  // copies of unchanged blocks are kept
  // The options that a seed means.
  static ModelOptions FromSeed(int seed, int operations);
};

struct ModelResult {
  uint64_t wrong_words = 0;
  uint64_t refused_launches = 0;  // 0 unless failures were injected
  bool may_refuse = false;
};

// Runs the job to its end or until something is wrong.
ModelResult RunModel(const ModelOptions& options, Coverage* coverage);

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_CORE_MODEL_H_
