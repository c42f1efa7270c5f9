// Contents of blocks: words that are a function of a version number, written and compared by kernels. Each
// word says its place, too, so that bytes of another block or version are told apart. Wrong ones end the run.

#ifndef SPILLWAY_TESTS_SIMULATION_CONTENTS_H_
#define SPILLWAY_TESTS_SIMULATION_CONTENTS_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/simulation/gpu.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {

inline uint64_t WordOf(uint64_t version, uint64_t index) { return version * 0x9e3779b97f4a7c15u + index; }

inline void Write(uint64_t* words, uint64_t first, uint64_t count, uint64_t version) {
  for (uint64_t i = 0; i < count; ++i) words[i] = WordOf(version, first + i);
}

inline void Compare(const uint64_t* words, uint64_t first, uint64_t count, uint64_t version,
                    const char* who) {
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < count; ++i) wrong += words[i] != WordOf(version, first + i);
  if (wrong == 0) return;
  scheduler().Fail(std::string("wrong bytes: ") + who + " finds " + std::to_string(wrong) + " of " +
                   std::to_string(count) + " words that are not of version " + std::to_string(version));
}

// What one kernel does with one block: compares it with `before` (0: it is not known), and writes `after`
// when that is another version.
struct Use {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  uint64_t before = 0;
  uint64_t after = 0;
};

inline void UseBlock(Gpu* gpu, const Use& use, uint64_t chunk_bytes) {
  for (uint64_t at = 0; at < use.bytes; at += chunk_bytes) {
    if (at > 0) gpu->Pause();
    uint64_t* const words = gpu->Words(use.address + at);
    const uint64_t count = std::min(chunk_bytes, use.bytes - at) / 8;
    if (use.before != 0) Compare(words, at / 8, count, use.before, "a kernel");
    if (use.after != use.before) Write(words, at / 8, count, use.after);
  }
}

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_CONTENTS_H_
