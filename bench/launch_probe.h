// A thread of the job that goes on launching a small kernel while blocks move, and how long each launch took.
// It names no block of ours, so all that it waits for is the driver. For the hardware bench, whose own thread
// makes and ends it. A failed launch ends the program with a line.

#ifndef SPILLWAY_BENCH_LAUNCH_PROBE_H_
#define SPILLWAY_BENCH_LAUNCH_PROBE_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/fakes/hardware_stand_in.h"

namespace spillway::bench {

class LaunchProbe {
 public:
  // A launch each `pause_ns`, from now on; the context is made current on the thread.
  LaunchProbe(const fakes::HardwareStandIn& machine, const allocator::CudaDriver* driver, CUcontext context,
              int64_t pause_ns);
  // Ends the thread. Nanoseconds of each launch, ascending.
  std::vector<int64_t> End();

 private:
  void Loop();

  const fakes::HardwareStandIn& machine_;
  const allocator::CudaDriver* const driver_;
  const CUcontext context_;
  const int64_t pause_ns_;
  std::atomic<bool> end_{false};
  std::vector<int64_t> times_;  // the thread's only until End
  std::thread thread_;
};

// The value that so many parts of a thousand of the sorted values do not exceed.
double PerMille(const std::vector<int64_t>& sorted, int parts);

}  // namespace spillway::bench

#endif  // SPILLWAY_BENCH_LAUNCH_PROBE_H_
