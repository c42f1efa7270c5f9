// What a launch meets in the product, in a shared library of its own, as in the product (thread-local variables cost
// more there): hooks, gate, residency and prediction over the driver that does nothing. Opened by launch_scan_bench.

#ifndef SPILLWAY_BENCH_GATE_LIBRARY_H_
#define SPILLWAY_BENCH_GATE_LIBRARY_H_

#include <cstdint>

extern "C" {

struct spillway_gate_bench {
  // The wrapper of that driver function, as the application would call it; null when there is none.
  void* (*wrapper)(const char* symbol);
  // A block of that many bytes; aborts when there is none. Its first launch makes it resident.
  uint64_t (*allocate)(uint64_t bytes);
  // Gives it back, to the cache.
  void (*free_block)(uint64_t address);
};

// Builds everything. `predict`: with the observer that the plan policy uses. Once per process.
typedef const spillway_gate_bench* (*spillway_gate_bench_open_fn)(int predict);
#define SPILLWAY_GATE_BENCH_OPEN "spillway_gate_bench_open"

}  // extern "C"

#endif  // SPILLWAY_BENCH_GATE_LIBRARY_H_
