// ActiveShare: how little of a job's live memory its kernels use. The report of a run and `spillway
// characterize` show it. Pure; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_MODEL_ACTIVE_SHARE_H_
#define SPILLWAY_POLICY_MODEL_ACTIVE_SHARE_H_

#include "policy/model/workload.h"

namespace spillway::policy {

// The bytes of the tensors that one kernel names, and its workspace, as part of the most bytes that are live
// at once: the mean over the kernels, the mean over time, and the most. (TERAIO, arXiv 2506.06472, reports
// 1.7 % and less than 14 % of the GPU's memory for language models.) 0 if nothing lives.
struct ActiveShare {
  double by_kernel = 0, by_time = 0, most = 0;
};

ActiveShare FindActiveShare(const Workload& workload, Bytes peak_live_bytes);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_ACTIVE_SHARE_H_
