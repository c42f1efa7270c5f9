// The state of the spill directories as a job would find them: the facts of the check at the start, the way
// and the rates of transfers. `spillway doctor` calls it. Measuring takes the time that the options give for
// each directory; no file is left, whatever ends the process. One thread; a failure is a problem in the
// facts.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_DIRECTORY_FACTS_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_DIRECTORY_FACTS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "integration/cli/doctor/facts.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

// The most that measuring writes into a directory: more than the caches of drives in use, and little of their
// life.
inline constexpr uint64_t kMaxMeasured = uint64_t{32} << 30;

struct DiskOptions {
  std::chrono::nanoseconds time{0};  // for each directory; 0: no rates
  std::function<void(const std::string& path, const io::DiskProgress&)> progress;  // may be null
};

// `directories`: as the check at the start found them, in its order.
std::vector<DiskFacts> InspectDisks(const Settings& settings, const std::vector<DirectoryFacts>& directories,
                                    const DiskOptions& options);

// Returns a mount on this machine with a faster kind of drive than that of `disk`, and with space beyond the
// default reserve.
std::optional<MountFacts> FasterThan(const DiskFacts& disk);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_DIRECTORY_FACTS_H_
