// Report: the engine's figures for people and programs: the summary at the end, and the metrics file. Pure functions
// of statistics, but for WriteFileAtomically.

#ifndef SPILLWAY_INTEGRATION_ENGINE_REPORT_H_
#define SPILLWAY_INTEGRATION_ENGINE_REPORT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "allocator/residency/residency.h"
#include "integration/engine/observation.h"
#include "integration/engine/step_meter.h"
#include "io/os/wait.h"

namespace spillway::integration {

struct DeviceFigures {
  int device = 0;
  allocator::ResidencyStats stats;
  uint64_t plans = 0;                    // put in force
  uint64_t plan_departures = 0;          // given up because a launch was another than expected
  uint64_t plan_period_launches = 0;     // of the plan in force, or of the step that is observed; 0: none
  uint64_t plan_readoptions = 0;         // of plans: of a path that the job had left and came back to
  uint64_t plan_improvements = 0;        // of plans: better ones for the path that the job was on
  uint64_t plan_paths = 0;               // known now
  uint64_t followed_launches = 0;        // that were as the path said which the job was on
  uint64_t step_marks = 0;               // steps that the job marked
  StepForecast forecast;                 // as of now; that of the steady steps is what is reported
  SteadySteps steady;                    // set by the reporter
  std::optional<ObservedStep> observed;  // SPILLWAY=observe
};

// Of the spill files of the process, all devices.
struct DiskFigures {
  uint64_t written_bytes = 0;
  uint64_t read_bytes = 0;
  uint64_t room_bytes = 0;  // that slots can hold in what the file systems have allocated for us
};

struct Figures {
  std::vector<DeviceFigures> devices;
  DiskFigures disk;
  uint64_t host_room_bytes = 0;  // of the host tier, pinned
  std::array<os::WaitList::Totals, static_cast<size_t>(os::WaitKind::kCount)> waits = {};  // by kind
  std::string waits_now;        // those of a second and longer, in words; empty: none
  double seconds = 0;           // since the first block
  double steps_per_second = 0;  // lately; 0: not known
};

// The sum over devices; peaks and budgets are added too, since each device has its own memory.
allocator::ResidencyStats Total(const std::vector<DeviceFigures>& devices);

// One JSON object: totals at the top level, "devices" a list with the same keys. Bytes, counts, seconds.
std::string MetricsJson(const Figures& figures);

// "peak 3.10 GiB of a budget of 2.00 GiB; ..." without the prefix; empty when nothing of ours was ever used.
std::string Summary(const Figures& figures);

// Lines about the step that repeats, one for each device where it is known how long it takes; without the prefix.
std::vector<std::string> StepLines(const Figures& figures);

// Part of the bound that the measured step reaches, in percent, at most 100: times of launches are means of samples, so a
// step may seem faster than its bound by a little. None when either is not known, or they contradict each other.
std::optional<double> PercentOfBound(const DeviceFigures& device);

// What SIGUSR1 asks for, without the prefix: "status: on the GPU 1.20 GiB of 2.00 GiB, host ...".
std::string StatusText(const Figures& figures);

// Writes `text` to a file beside `path` and renames it: readers see the old or the new one, whole.
absl::Status WriteFileAtomically(const std::string& path, const std::string& text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_REPORT_H_
