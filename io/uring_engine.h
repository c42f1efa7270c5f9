// IoEngine over one io_uring. Many containers and some kernels refuse io_uring, with many different errors.
// OpenDirectory (io/probe.h) therefore probes it with real transfers and uses threads where it does not work.

#ifndef SPILLWAY_IO_URING_ENGINE_H_
#define SPILLWAY_IO_URING_ENGINE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "io/engine.h"

namespace spillway::io {

// `files` are open descriptors, which the caller closes after Stop. `capacity` is the number of requests in
// flight. Returns every error of setting up the ring.
absl::StatusOr<std::unique_ptr<IoEngine>> MakeUringEngine(const std::vector<int>& files, size_t capacity);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_URING_ENGINE_H_
