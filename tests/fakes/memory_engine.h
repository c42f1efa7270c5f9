// MemoryEngine: an IoEngine whose file is memory, with a modeled latency and bandwidth. Transfers happen at
// once, and their results become due one after the other, as on a disk with one queue. For tests that want no
// disk's moods.

#ifndef SPILLWAY_TESTS_FAKES_MEMORY_ENGINE_H_
#define SPILLWAY_TESTS_FAKES_MEMORY_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "io/engine/engine.h"

namespace spillway::io {

struct MemoryEngineOptions {
  size_t capacity = 16;
  uint32_t files = 1;
  std::chrono::nanoseconds latency{0};
  double bytes_per_second = 0;  // 0: without end
  // Called with each request, on the submitting thread. May be null.
  std::function<void(const IoRequest&)> on_submit{};
};

std::unique_ptr<IoEngine> MakeMemoryEngine(const MemoryEngineOptions& options);

}  // namespace spillway::io

#endif  // SPILLWAY_TESTS_FAKES_MEMORY_ENGINE_H_
