#include "policy/model/active_share.h"

#include <algorithm>

namespace spillway::policy {
namespace {

Bytes ActiveBytes(const Workload& workload, const WorkloadKernel& kernel) {
  Bytes bytes = kernel.workspace_bytes;
  for (uint32_t t : kernel.inputs) bytes += workload.tensors[t].bytes;
  for (uint32_t t : kernel.outputs) {
    if (!std::ranges::binary_search(kernel.inputs, t)) bytes += workload.tensors[t].bytes;
  }
  return bytes;
}

}  // namespace

ActiveShare FindActiveShare(const Workload& workload, Bytes peak_live_bytes) {
  ActiveShare share;
  if (peak_live_bytes == 0) return share;
  const double peak = static_cast<double>(peak_live_bytes);
  double by_time = 0;
  for (const WorkloadKernel& kernel : workload.kernels) {
    const double part = static_cast<double>(ActiveBytes(workload, kernel)) / peak;
    share.by_kernel += part / static_cast<double>(workload.kernels.size());
    share.most = std::max(share.most, part);
    by_time += part * static_cast<double>(kernel.duration);
  }
  const Nanos ideal = workload.IdealTime();
  if (ideal > 0) share.by_time = by_time / static_cast<double>(ideal);
  return share;
}

}  // namespace spillway::policy
