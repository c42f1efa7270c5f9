// ModelEngine: an IoEngine around any other one that lets results come no sooner than a disk of set speed would have
// given them, so that what a slower disk does to a job can be tried, and computed beforehand. The bytes are moved by the
// engine inside: it is never faster than that one. DiskModel is the arithmetic alone, without time of its own.

#ifndef SPILLWAY_IO_MODEL_ENGINE_H_
#define SPILLWAY_IO_MODEL_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "io/engine.h"

namespace spillway::io {

// One disk: reads do not slow writes down, nor the other way round.
struct DiskModelOptions {
  double read_bytes_per_second = 0;   // 0: as fast as the real disk
  double write_bytes_per_second = 0;  // likewise
  int64_t latency_nanos = 0;          // of each request; those of several requests pass at the same time

  bool Limits() const { return read_bytes_per_second > 0 || write_bytes_per_second > 0 || latency_nanos > 0; }
};

// "read 1.20 GB/s, write 1.20 GB/s, latency 80 us", what is not limited left out.
std::string DescribeModel(const DiskModelOptions& options);

// Each direction serves its requests one after the other in the order in which they came: a request begins when the one
// before it has been served, takes length / rate, and is answered the latency later.
class DiskModel {
 public:
  explicit DiskModel(const DiskModelOptions& options) : options_(options) {}

  // When the answer to a request that arrives at `now` (ns, never less than before) is due (ns).
  int64_t DueAt(IoOp op, uint32_t length, int64_t now);

 private:
  const DiskModelOptions options_;
  int64_t served_until_[2] = {0, 0};  // by direction, ns
};

// A result is handed out when it is due and the engine inside has given it; errors and short transfers are kept as they
// are. Time is CLOCK_MONOTONIC, since Poll waits by it.
std::unique_ptr<IoEngine> MakeModelEngine(std::unique_ptr<IoEngine> inner, const DiskModelOptions& options);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_MODEL_ENGINE_H_
