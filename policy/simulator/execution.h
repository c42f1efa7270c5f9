// Execution: the options of a plan's execution and its result: times, waits, traffic and, if wanted, every
// event. simulator.h makes it; the search for plans, `spillway simulate` and its schedules read it. Data
// only.

#ifndef SPILLWAY_POLICY_SIMULATOR_EXECUTION_H_
#define SPILLWAY_POLICY_SIMULATOR_EXECUTION_H_

#include <cstdint>
#include <vector>

#include "policy/model/units.h"

namespace spillway::policy {

enum class Place : uint8_t { kGpu, kHost, kSsd };

struct ScheduleEvent {
  enum class Kind : uint8_t { kKernel, kMove, kDrop, kInit };
  Kind kind = Kind::kKernel;
  uint32_t iteration = 0;
  uint32_t id = 0;  // kernel or tensor
  uint32_t first_piece = 0, last_piece = 0;
  Place from = Place::kGpu, to = Place::kGpu;
  Nanos start = 0, end = 0;
  uint32_t drive = 0;  // of a move from or to the SSD
};

enum class VictimOrder : uint8_t { kFarthestNextUse, kLeastRecentlyUsed };

struct ExecutionOptions {
  uint32_t iterations = 6;            // 3 at least: the last two are measured
  std::vector<Nanos> durations = {};  // of each kernel of each iteration; empty: the workload's
  bool record = false;                // keep the events
  bool prefetch = true;               // false: bytes come back only when the next kernel waits for them
  VictimOrder victims = VictimOrder::kFarthestNextUse;  // what leaves in need
  // Longer transfers are cut into moves of this size at most (whole tensors are not).
  Bytes move_bytes = 64 << 20;
};

struct Traffic {  // bytes per measured iteration
  double host_to_gpu = 0, gpu_to_host = 0, ssd_to_gpu = 0, gpu_to_ssd = 0, ssd_to_host = 0;
};

struct Execution {
  std::vector<Nanos> iteration_ends;
  Nanos iteration = 0;            // mean of the last two
  Nanos ideal = 0;                // mean of the sums of their kernels
  std::vector<Nanos> read_waits;  // for bytes to arrive, before each kernel of the last iteration but one
  // Waits per measured iteration: for bytes to arrive; for memory that was not free yet, or a transfer that
  // had not begun.
  Nanos read_wait = 0, memory_wait = 0;
  // The parts of these two during which the SSD was read for the kernel; during which a copy out to the SSD
  // was under way.
  Nanos ssd_read_wait = 0, ssd_memory_wait = 0;
  Traffic traffic;
  Bytes peak_gpu_bytes = 0, peak_host_bytes = 0;
  uint64_t evictions_in_need = 0;  // parts, over all iterations
  std::vector<ScheduleEvent> events;

  double PercentOfIdeal() const {
    return iteration == 0 ? 100 : 100.0 * static_cast<double>(ideal) / static_cast<double>(iteration);
  }
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_EXECUTION_H_
