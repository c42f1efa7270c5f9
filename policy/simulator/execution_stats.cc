#include "policy/simulator/execution_stats.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace spillway::policy {

ExecutionStats::ExecutionStats(uint64_t kernels, const ExecutionOptions& options)
    : kernels_(kernels),
      options_(options),
      read_waits_(kernels * options.iterations, 0),
      memory_waits_(kernels * options.iterations, 0),
      ssd_read_waits_(options.iterations, 0),
      ssd_memory_waits_(options.iterations, 0) {}

void ExecutionStats::Waited(uint64_t position, Nanos time, const Wait& wait) {
  const uint64_t iteration = position / kernels_;
  (wait.arriving ? read_waits_ : memory_waits_)[position] += time;
  if (wait.arriving && wait.reading) ssd_read_waits_[iteration] += time;
  if (!wait.arriving && wait.writing) ssd_memory_waits_[iteration] += time;
}

void ExecutionStats::CountTraffic(Nanos begin, Nanos end, size_t measured) {
  const double per = static_cast<double>(measured);
  for (const MovedBytes& move : moved_) {
    const Nanos inside = std::min(move.end, end) - std::max(move.start, begin);
    if (inside <= 0) continue;
    result_.traffic.*move.way += static_cast<double>(move.bytes) * static_cast<double>(inside) /
                                 static_cast<double>(move.end - move.start) / per;
  }
}

Execution ExecutionStats::Take(Nanos ideal, Bytes peak_gpu_bytes, Bytes peak_host_bytes) {
  const size_t iterations = result_.iteration_ends.size();
  const size_t measured = std::min<size_t>(2, iterations - 1);
  const Nanos begin = result_.iteration_ends[iterations - 1 - measured];
  const Nanos end = result_.iteration_ends.back();
  result_.iteration = (end - begin) / static_cast<Nanos>(measured);
  CountTraffic(begin, end, measured);
  // The beginning of the last `back` iterations, in values by kernel.
  const auto by_kernel = [this](const std::vector<Nanos>& values, uint64_t back) {
    return values.cend() - static_cast<ptrdiff_t>(back * kernels_);
  };
  const auto mean = [measured](auto first, auto last) {
    return std::accumulate(first, last, Nanos{0}) / static_cast<Nanos>(measured);
  };
  result_.read_waits.assign(by_kernel(read_waits_, 2), by_kernel(read_waits_, 1));
  result_.read_wait = mean(by_kernel(read_waits_, measured), read_waits_.cend());
  result_.memory_wait = mean(by_kernel(memory_waits_, measured), memory_waits_.cend());
  const auto last = static_cast<ptrdiff_t>(measured);
  result_.ssd_read_wait = mean(ssd_read_waits_.cend() - last, ssd_read_waits_.cend());
  result_.ssd_memory_wait = mean(ssd_memory_waits_.cend() - last, ssd_memory_waits_.cend());
  const std::vector<Nanos>& durations = options_.durations;
  result_.ideal = durations.empty() ? ideal : mean(by_kernel(durations, measured), durations.cend());
  result_.peak_gpu_bytes = peak_gpu_bytes;
  result_.peak_host_bytes = peak_host_bytes;
  return std::move(result_);
}

}  // namespace spillway::policy
