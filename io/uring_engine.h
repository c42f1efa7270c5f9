// IoEngine over one io_uring. Refused by many containers and some kernels, with many errors: whoever makes one probes
// it with real transfers and is ready to use threads instead.

#ifndef SPILLWAY_IO_URING_ENGINE_H_
#define SPILLWAY_IO_URING_ENGINE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "io/engine.h"

namespace spillway::io {

// `files` are open descriptors, which the caller closes after Stop. `capacity` is the number of requests in flight.
// Any error of setting up the ring is returned; none is fatal.
absl::StatusOr<std::unique_ptr<IoEngine>> MakeUringEngine(const std::vector<int>& files, size_t capacity);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_URING_ENGINE_H_
