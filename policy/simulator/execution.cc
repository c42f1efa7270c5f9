#include "policy/simulator/execution.h"

#include <algorithm>
#include <numeric>

#include "policy/simulator/executor.h"

namespace spillway::policy {

// Traffic and waits of the last two iterations.
Execution Executor::TakeResult() {
  const size_t iterations = result_.iteration_ends.size();
  const size_t measured = std::min<size_t>(2, iterations - 1);
  const Nanos begin = result_.iteration_ends[iterations - 1 - measured];
  const Nanos end = result_.iteration_ends.back();
  const double per = static_cast<double>(measured);
  result_.iteration = (end - begin) / static_cast<Nanos>(measured);
  for (const MovedBytes& move : moved_) {
    const Nanos inside = std::min(move.end, end) - std::max(move.start, begin);
    if (inside <= 0) continue;
    const double bytes = static_cast<double>(move.bytes) * static_cast<double>(inside) /
                         static_cast<double>(move.end - move.start) / per;
    Traffic& traffic = result_.traffic;
    (move.out    ? move.host ? traffic.gpu_to_host : traffic.gpu_to_ssd
     : move.host ? traffic.host_to_gpu
                 : traffic.ssd_to_gpu) += bytes;
  }
  const auto at = [this](std::vector<Nanos>& waits, uint64_t back) { return waits.end() - back * kernels_; };
  result_.read_waits.assign(at(read_waits_, 2), at(read_waits_, 1));
  result_.read_wait = std::accumulate(at(read_waits_, measured), read_waits_.end(), Nanos{0}) / measured;
  result_.room_wait = std::accumulate(at(room_waits_, measured), room_waits_.end(), Nanos{0}) / measured;
  const auto mean = [measured](const std::vector<Nanos>& waits) {  // of the measured iterations
    return std::accumulate(waits.end() - static_cast<ptrdiff_t>(measured), waits.end(), Nanos{0}) /
           static_cast<Nanos>(measured);
  };
  result_.ssd_read_wait = mean(ssd_read_waits_);
  result_.ssd_room_wait = mean(ssd_room_waits_);
  result_.ideal = workload_.IdealTime();
  if (!options_.durations.empty()) {
    result_.ideal = std::accumulate(at(const_cast<std::vector<Nanos>&>(options_.durations), measured),
                                    const_cast<std::vector<Nanos>&>(options_.durations).end(), Nanos{0}) /
                    static_cast<Nanos>(measured);
  }
  result_.peak_gpu_bytes = state_.peak[0];
  result_.peak_host_bytes = state_.peak[1];
  return std::move(result_);
}

absl::StatusOr<Execution> Execute(const Workload& workload, const Lifetimes& lifetimes,
                                  const Machine& machine, const TransferPlan& plan,
                                  const ExecutionOptions& options) {
  Executor executor(workload, lifetimes, machine, plan, options);
  if (absl::Status status = executor.Run(); !status.ok()) return status;
  return executor.TakeResult();
}

}  // namespace spillway::policy
