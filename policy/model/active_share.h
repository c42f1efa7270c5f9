// ActiveShare: how little of a job's live memory its kernels use. The report of a run and `spillway
// characterize` show it. Pure; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_MODEL_ACTIVE_SHARE_H_
#define SPILLWAY_POLICY_MODEL_ACTIVE_SHARE_H_

#include "policy/model/workload.h"

namespace spillway::policy {

// One kernel's active bytes are the tensors that it names and its workspace. Each value is such bytes as a
// part (0 to 1) of the job's peak of live bytes: the mean over the kernels, the mean over time, and the
// largest. (TERAIO, arXiv 2506.06472, reports 1.7 % and less than 14 % of the GPU's memory for language
// models.) All are 0 if nothing lives.
struct ActiveShare {
  double by_kernel = 0, by_time = 0, most = 0;
};

ActiveShare FindActiveShare(const Workload& workload, Bytes peak_live_bytes);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_ACTIVE_SHARE_H_
