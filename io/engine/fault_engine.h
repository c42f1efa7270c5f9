// FaultEngine: an IoEngine around another one, whose drive fails by a schedule: for a time, its requests are
// answered with an error, or are held back as by a drive that is silent and then comes back. What a job does
// then can thus be tried. The setting io_faults switches it on. It has the threads of the inner engine.

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

// One sickness of a drive. Its time counts from the directory's first request.
struct DriveFault {
  std::optional<size_t> directory{};  // index into SpillStoreOptions::directories; nothing: each of them
  bool reads = false;
  bool writes = false;
  int error = 0;           // errno; 0: silence
  int64_t from_nanos = 0;  // its beginning
  int64_t for_nanos = 0;   // how long it lasts
};

// The errno of a name that drives answer ("EIO"), in upper case; 0 for others.
int DriveErrno(std::string_view name);

// "reads of each directory get EIO from 3000 ms on for 30 ms", joined by "; ".
std::string DescribeFaults(const std::vector<DriveFault>& faults);

// Only those of `directory` are kept; without any the inner engine itself is returned.
std::unique_ptr<IoEngine> MakeFaultEngine(std::unique_ptr<IoEngine> inner,
                                          const std::vector<DriveFault>& faults, size_t directory,
                                          const os::Clock* clock = os::Clock::System());

}  // namespace spillway::io

#endif  // SPILLWAY_IO_ENGINE_FAULT_ENGINE_H_
