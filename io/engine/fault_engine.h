// FaultEngine: an IoEngine around another one, whose drive fails by a schedule. For a time, its requests are
// answered with an error, or are kept back as by a drive that is silent and then comes back. This shows what
// a job does with such a drive. The setting io_faults switches it on. It has the threads of the inner engine.

#ifndef SPILLWAY_IO_ENGINE_FAULT_ENGINE_H_
#define SPILLWAY_IO_ENGINE_FAULT_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/engine/engine.h"
#include "io/os/clock.h"

namespace spillway::io {

// One failure of a drive. Its time counts from the directory's first request.
struct DriveFault {
  std::optional<size_t> directory{};  // index into SpillStoreOptions::directories; nothing: each of them
  bool reads = false;
  bool writes = false;
  int error = 0;           // errno; 0: silence
  int64_t from_nanos = 0;  // its beginning
  int64_t for_nanos = 0;   // its duration
};

// The errno of the name of an error that drives return ("EIO"), in upper case; 0 for other names.
int DriveErrno(std::string_view name);

// A text such as "reads of each directory get EIO from 3000 ms on for 30 ms"; several are joined by "; ".
std::string DescribeFaults(const std::vector<DriveFault>& faults);

// Applies the faults of `directory` alone. Returns the inner engine itself when there are none.
std::unique_ptr<IoEngine> MakeFaultEngine(std::unique_ptr<IoEngine> inner,
                                          const std::vector<DriveFault>& faults, size_t directory,
                                          const os::Clock* clock = os::Clock::System());

}  // namespace spillway::io

#endif  // SPILLWAY_IO_ENGINE_FAULT_ENGINE_H_
