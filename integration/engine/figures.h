// Figures: what the engine counts and measures, in words for people and as JSON for programs. The reporter
// calls it for the summary, the status line and the metrics file, the C ABI for spillway.stats(). Pure
// functions of statistics: any thread, nothing fails.

#ifndef SPILLWAY_INTEGRATION_ENGINE_FIGURES_H_
#define SPILLWAY_INTEGRATION_ENGINE_FIGURES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocator/residency/residency.h"
#include "integration/engine/iteration_meter.h"
#include "integration/engine/observation.h"
#include "integration/engine/pause_figures.h"
#include "io/os/wait.h"
#include "io/spill_store.h"

namespace spillway::integration {

// Of one device, since the first block.
struct DeviceFigures {
  int device = 0;
  allocator::ResidencyStats stats;
  uint64_t plans = 0;                         // put in force
  uint64_t plan_departures = 0;               // plans given up because a launch was not the expected one
  uint64_t plan_iteration_launches = 0;       // of the plan in force, or of the iteration observed; 0: none
  uint64_t plan_readoptions = 0;              // plans of a sequence that the job had left and came back to
  uint64_t plan_improvements = 0;             // better plans for the sequence that the job was on
  uint64_t plan_sequences = 0;                // known now
  uint64_t followed_launches = 0;             // that came as the sequence has them
  uint64_t plan_accesses = 0;                 // of an iteration of the plan made last
  uint64_t plan_accesses_known = 0;           // of these: whether they write was known when it was made
  uint64_t iteration_marks = 0;               // ends of iterations that the job marked
  IterationForecast forecast;                 // as of now; what is reported is that of `steady`
  SteadyIterations steady;                    // set by the reporter
  std::optional<ObservedIteration> observed;  // SPILLWAY=observe
};

// The spill files of the process, for all devices.
struct DiskFigures {
  uint64_t written_bytes = 0;
  uint64_t read_bytes = 0;
  uint64_t capacity_bytes = 0;  // that slots can hold in what the file systems have allocated for us
  std::vector<io::DirectoryStats> directories{};
  uint64_t write_budget_bytes = 0;       // 0: there is none
  uint64_t write_budget_left_bytes = 0;  // of it, now
};

struct Figures {
  std::vector<DeviceFigures> devices;
  PauseFigures pause;
  DiskFigures disk;
  uint64_t host_capacity_bytes = 0;  // of the host tier: what is pinned
  uint64_t unknown_launches = 0;     // of kernels whose handle no hook has seen: each reached everything
  std::array<os::WaitList::Totals, static_cast<size_t>(os::WaitKind::kCount)> waits = {};  // by kind
  std::string evictions_ended;       // the call that ended them, in words; empty: they go on
  uint64_t newer_calls = 0;          // of driver functions that no table of ours has
  std::string waits_now;             // those of a second and longer, in words; empty: none
  double seconds = 0;                // since the first block
  double iterations_per_second = 0;  // lately; 0: not known
};

// The sum over devices. Peaks and budgets are added, too: each device has its own memory.
allocator::ResidencyStats Total(const std::vector<DeviceFigures>& devices);

// Seconds for which launching threads waited, whatever for.
double StallSeconds(const allocator::ResidencyStats& stats);
inline double SecondsOf(uint64_t nanos) { return static_cast<double>(nanos) / 1e9; }

// One JSON object: totals at the top level, "devices" a list with the same keys. Bytes, counts, seconds.
std::string MetricsJson(const Figures& figures);

// "peak 3.10 GiB of a budget of 2.00 GiB; ..." without the prefix; empty when nothing of ours was ever used.
std::string Summary(const Figures& figures);

// A line about the iteration of each device that moved bytes and whose iterations are known well enough;
// without the prefix.
std::vector<std::string> IterationLines(const Figures& figures);

// The bound as a percentage of the measured iteration, at most 100. Times of launches are means of samples,
// so an iteration may seem a little faster than its bound. None when either is not known, or they contradict
// each other.
std::optional<double> PercentOfBound(const DeviceFigures& device);

// What SIGUSR1 asks for, without the prefix: "status: on the GPU 1.20 GiB of 2.00 GiB, host ...".
std::string StatusText(const Figures& figures);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_FIGURES_H_
