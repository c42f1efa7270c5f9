// Random: the one source of chance of a simulation: the same numbers for the same seed, everywhere. A run
// that fails is run again by its seed, so nothing else may be asked for chance.

#ifndef SPILLWAY_TESTS_SIMULATION_RANDOM_H_
#define SPILLWAY_TESTS_SIMULATION_RANDOM_H_

#include <cstdint>

namespace spillway::simulation {

// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0 .. count - 1.
  uint32_t Below(uint32_t count) { return static_cast<uint32_t>(((Next() >> 32) * count) >> 32); }
  bool OneIn(uint32_t count) { return Below(count) == 0; }

 private:
  uint64_t state_;
};

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_RANDOM_H_
