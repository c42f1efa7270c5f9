#include "policy/model/workload.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"

namespace spillway::policy {
namespace {

absl::Status CheckLife(const Workload& workload, uint32_t kernel, uint32_t tensor) {
  const std::optional<TensorLife>& life = workload.tensors[tensor].life;
  if (!life) return absl::OkStatus();
  const bool after_first = kernel >= life->first, before_last = kernel <= life->last;
  if (life->wraps() ? after_first || before_last : after_first && before_last) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("kernel ", kernel, ": tensor ", tensor, " does not live then"));
}

bool Ascending(const std::vector<uint32_t>& ids) {
  return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
}

}  // namespace

Nanos Workload::IdealTime() const {
  Nanos total = 0;
  for (const WorkloadKernel& kernel : kernels) total += kernel.duration;
  return total;
}

absl::Status CheckWorkload(const Workload& workload) {
  if (workload.kernels.empty()) return absl::InvalidArgumentError("a trace without kernels");
  Bytes bytes = 0;
  Nanos time = 0;
  for (size_t t = 0; t < workload.tensors.size(); ++t) {
    const WorkloadTensor& tensor = workload.tensors[t];
    if (tensor.bytes == 0) return absl::InvalidArgumentError(absl::StrCat("tensor ", t, " has no bytes"));
    if (tensor.life &&
        (tensor.persistent || std::max(tensor.life->first, tensor.life->last) >= workload.kernels.size()))
      return absl::InvalidArgumentError(absl::StrCat("tensor ", t, " lives out of range"));
    if (tensor.bytes > kMaxWorkloadBytes - bytes)
      return absl::InvalidArgumentError(absl::StrCat("tensor ", t, ": ", kTooManyBytes));
    bytes += tensor.bytes;
  }
  for (size_t k = 0; k < workload.kernels.size(); ++k) {
    const WorkloadKernel& kernel = workload.kernels[k];
    if (kernel.duration < 0)
      return absl::InvalidArgumentError(absl::StrCat("kernel ", k, " has a negative duration"));
    if (kernel.duration > kLongestWorkload - time)
      return absl::InvalidArgumentError(absl::StrCat("kernel ", k, ": ", kTooLong));
    time += kernel.duration;
    if (kernel.workspace_bytes > kMaxWorkloadBytes)
      return absl::InvalidArgumentError(absl::StrCat("kernel ", k, ": ", kTooManyBytes));
    for (const auto* ids : {&kernel.inputs, &kernel.outputs}) {
      if (!Ascending(*ids))
        return absl::InvalidArgumentError(absl::StrCat("kernel ", k, ": tensors are not ascending"));
      if (!ids->empty() && ids->back() >= workload.tensors.size())
        return absl::InvalidArgumentError(
            absl::StrCat("kernel ", k, ": tensor ", ids->back(), " does not exist"));
      for (uint32_t t : *ids) {
        if (absl::Status status = CheckLife(workload, static_cast<uint32_t>(k), t); !status.ok())
          return status;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace spillway::policy
