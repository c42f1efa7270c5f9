// An IoEngine over one io_uring. Many containers and some kernels refuse io_uring, with many different
// errors. OpenDirectory (io/store/probe.h) therefore probes it with real transfers and uses threads if it
// does not work.

#ifndef SPILLWAY_IO_ENGINE_URING_ENGINE_H_
#define SPILLWAY_IO_ENGINE_URING_ENGINE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "io/engine/engine.h"

namespace spillway::io {

// The threads whose Poll ends at a Wake. The kernel completes a wake-up on the thread that armed it, and so
// no sooner than that thread leaves the call that it is in.
enum class WakeUps : uint8_t {
  kAnyThread,
  kNotTheMaker,  // the thread that makes the engine only probes it, and hands it to another one
};

// `files` are open descriptors, which the caller closes after Stop. `capacity` is the number of requests in
// flight. Returns every error of setting up the ring.
absl::StatusOr<std::unique_ptr<IoEngine>> MakeUringEngine(const std::vector<int>& files, size_t capacity,
                                                          WakeUps wake_ups = WakeUps::kAnyThread);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_ENGINE_URING_ENGINE_H_
