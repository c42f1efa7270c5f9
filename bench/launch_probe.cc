#include "bench/launch_probe.h"

#include <sys/prctl.h>

#include <algorithm>

#include "bench/stand_in.h"
#include "io/os/clock.h"
#include "io/os/thread.h"

namespace spillway::bench {

LaunchProbe::LaunchProbe(const fakes::HardwareStandIn& machine, const allocator::CudaDriver* driver,
                         CUcontext context, int64_t pause_ns)
    : machine_(machine), driver_(driver), context_(context), pause_ns_(pause_ns) {
  thread_ = std::thread([this] { Loop(); });
}

std::vector<int64_t> LaunchProbe::End() {
  end_ = true;
  thread_.join();
  std::sort(times_.begin(), times_.end());
  return std::move(times_);
}

void LaunchProbe::Loop() {
  os::SetTimerSlack(std::chrono::microseconds(1));
  Must(driver_->cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  CUstream stream = nullptr;
  Must(driver_->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
  while (!end_.load()) {
    uint64_t nothing = 0;
    void* parameters[] = {&nothing};
    const int64_t start = os::Clock::System()->NowNanos();
    Must(machine_.launch_kernel(machine_.empty_kernel(), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
         "a small launch");
    times_.push_back(os::Clock::System()->NowNanos() - start);
    os::SleepFor(std::chrono::nanoseconds(pause_ns_));
  }
  Must(driver_->cuStreamSynchronize(stream), "cuStreamSynchronize");
  Must(driver_->cuStreamDestroy_v2(stream), "cuStreamDestroy");
}

double PerMille(const std::vector<int64_t>& sorted, int parts) {
  if (sorted.empty()) return 0;
  const size_t at = std::min(sorted.size() - 1, sorted.size() * static_cast<size_t>(parts) / 1000);
  return static_cast<double>(sorted[at]);
}

}  // namespace spillway::bench
