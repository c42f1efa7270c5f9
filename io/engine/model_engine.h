// ModelEngine: an IoEngine around another one. It gives each result no sooner than a disk of a set speed
// would have given it, so that the effect of a slower disk on a job can be measured, and computed beforehand.
// The inner engine moves the bytes, so the model is never faster than the real disk. DiskModel is the
// arithmetic alone; it reads no clock. The setting io_model switches it on. It has the threads and the errors
// of the inner engine.

#ifndef SPILLWAY_IO_ENGINE_MODEL_ENGINE_H_
#define SPILLWAY_IO_ENGINE_MODEL_ENGINE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "io/engine/engine.h"

namespace spillway::io {

// One disk. Reads and writes do not slow each other down.
struct DiskModelOptions {
  double read_bytes_per_second = 0;   // 0: as fast as the real disk
  double write_bytes_per_second = 0;  // 0: as fast as the real disk
  int64_t latency_nanos = 0;          // of each request; latencies of several requests overlap

  bool Limits() const { return read_bytes_per_second > 0 || write_bytes_per_second > 0 || latency_nanos > 0; }
};

// The models of a store's directories.
struct DiskModels {
  DiskModelOptions all;
  std::map<uint32_t, DiskModelOptions> own;  // by index of the directory; a limit here replaces that of `all`

  DiskModelOptions Of(uint32_t directory) const;
  bool Limits() const;
};

// A text such as "read 1.20 GB/s, write 1.20 GB/s, latency 80 us", without values that are not limited. For
// several disks: "read 1.20 GB/s; directory 1: write 0.30 GB/s".
std::string DescribeModel(const DiskModelOptions& options);
std::string DescribeModels(const DiskModels& models);

// Each direction serves its requests one after the other, in the order in which they came. A request begins
// when the one before it has been served, takes length / rate, and is answered one latency later.
class DiskModel {
 public:
  explicit DiskModel(const DiskModelOptions& options) : options_(options) {}

  // Time at which the answer to a request that arrives at `now` is due, in ns. `now` never goes back.
  int64_t DueAt(IoOp op, uint32_t length, int64_t now);

 private:
  const DiskModelOptions options_;
  int64_t served_until_[2] = {0, 0};  // by direction, ns
};

// Returns each result when it is due and the inner engine has given it. Errors and short transfers stay as
// they are. Time is CLOCK_MONOTONIC, since Poll waits by it.
std::unique_ptr<IoEngine> MakeModelEngine(std::unique_ptr<IoEngine> inner, const DiskModelOptions& options);

}  // namespace spillway::io

#endif  // SPILLWAY_IO_ENGINE_MODEL_ENGINE_H_
