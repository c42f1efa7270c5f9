// ExecutionStats: collects the times, waits and traffic of a simulated execution while it runs, and makes
// its Execution at the end. Private to the simulator; one thread; nothing fails.

#ifndef SPILLWAY_POLICY_SIMULATOR_EXECUTION_STATS_H_
#define SPILLWAY_POLICY_SIMULATOR_EXECUTION_STATS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "policy/simulator/execution.h"

namespace spillway::policy {

class ExecutionStats {
 public:
  // `kernels`: of one iteration.
  ExecutionStats(uint64_t kernels, const ExecutionOptions& options);

  // Why the next kernel could not start yet.
  struct Wait {
    bool arriving = false;  // bytes of its inputs were on their way; else it waited for memory
    bool reading = false;   // of them, some from the SSD
    bool writing = false;   // a copy out to the SSD was under way
  };
  // Kernel `position`, counted over iterations, waited for `time`.
  void Waited(uint64_t position, Nanos time, const Wait& wait);
  // `way`: one of Traffic's.
  void Moved(Nanos start, Nanos end, Bytes bytes, double Traffic::*way) {
    moved_.push_back({start, end, bytes, way});
  }
  void Moved(Nanos start, Nanos end, Bytes bytes, bool out, bool host) {
    Moved(start, end, bytes,
          out    ? host ? &Traffic::gpu_to_host : &Traffic::gpu_to_ssd
          : host ? &Traffic::host_to_gpu
                 : &Traffic::ssd_to_gpu);
  }
  // Kept only if the options ask for events.
  void Happened(const ScheduleEvent& event) {
    if (options_.record) result_.events.push_back(event);
  }
  void IterationEnded(Nanos now) { result_.iteration_ends.push_back(now); }
  void EvictedInNeed() { ++result_.evictions_in_need; }
  size_t iterations() const { return result_.iteration_ends.size(); }

  // Traffic and waits of the last two iterations. `ideal`: of an iteration by the workload's own durations.
  Execution Take(Nanos ideal, Bytes peak_gpu_bytes, Bytes peak_host_bytes);

 private:
  struct MovedBytes {
    Nanos start, end;
    Bytes bytes;
    double Traffic::*way;
  };
  void CountTraffic(Nanos begin, Nanos end, size_t measured);

  const uint64_t kernels_;
  const ExecutionOptions& options_;
  std::vector<MovedBytes> moved_;
  std::vector<Nanos> read_waits_, memory_waits_;          // before each kernel of each iteration
  std::vector<Nanos> ssd_read_waits_, ssd_memory_waits_;  // of each iteration
  Execution result_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_EXECUTION_STATS_H_
