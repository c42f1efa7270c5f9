#include "policy/offline/characterization.h"

#include <algorithm>
#include <vector>

#include "policy/model/lifetimes.h"

namespace spillway::policy {
namespace {

void AddInterval(const IdleInterval& interval, Bytes bytes, Nanos idle, double bytes_per_s, SizeClass* to) {
  ++to->intervals;
  for (size_t i = 0; i < to->longer.size(); ++i) {
    if (idle > Characterization::kIdleTimes[i]) ++to->longer[i];
  }
  if (!interval.returns) {
    ++to->dead;
    return;
  }
  to->interval_bytes += bytes;
  if (2 * static_cast<double>(bytes) / bytes_per_s * 1e9 <= static_cast<double>(idle))
    to->movable_bytes += bytes;
}

}  // namespace

Characterization Characterize(const Workload& workload, double bytes_per_s) {
  Characterization result;
  const Lifetimes lifetimes = FindLifetimes(workload);
  result.peak_live_bytes = static_cast<Bytes>(std::max<int64_t>(0, lifetimes.PeakLive()));
  result.active = FindActiveShare(workload, result.peak_live_bytes);
  for (size_t i = 0; i < result.sizes.size(); ++i)
    result.sizes[i].least_bytes = Characterization::kMinBytes[i];
  const auto class_of = [&result](Bytes bytes) {
    const auto next = std::ranges::upper_bound(Characterization::kMinBytes, bytes);
    return &result.sizes[static_cast<size_t>(next - Characterization::kMinBytes.begin()) - 1];
  };
  for (size_t t = 0; t < workload.tensors.size(); ++t) {
    if (lifetimes.uses[t].empty()) continue;
    const Bytes bytes = workload.tensors[t].bytes;
    for (SizeClass* to : {class_of(bytes), &result.all}) {
      ++to->tensors;
      to->bytes += bytes;
    }
  }
  const size_t kernels = workload.kernels.size();
  std::vector<Nanos> starts = {0};
  for (const WorkloadKernel& kernel : workload.kernels) starts.push_back(starts.back() + kernel.duration);
  const auto start_of = [&](uint32_t position) {
    return static_cast<Nanos>(position / kernels) * starts.back() + starts[position % kernels];
  };
  for (const IdleInterval& interval : lifetimes.intervals) {
    const Bytes bytes = workload.tensors[interval.tensor].bytes;
    const Nanos idle = start_of(interval.before) - start_of(interval.after + 1);
    for (SizeClass* to : {class_of(bytes), &result.all}) AddInterval(interval, bytes, idle, bytes_per_s, to);
  }
  return result;
}

}  // namespace spillway::policy
