// Workload: one iteration of a job that repeats: kernels in execution order with their durations, and the
// tensors that they read and write. The planners, the bounds and the simulator work on it. Data only;
// workload_file and workload_csv make it from bytes, recorded_workload from a trace. CheckWorkload finds the
// errors of one.

#ifndef SPILLWAY_POLICY_MODEL_WORKLOAD_H_
#define SPILLWAY_POLICY_MODEL_WORKLOAD_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "policy/model/units.h"

namespace spillway::policy {

struct WorkloadKernel {
  std::string name;
  Nanos duration = 0;
  std::vector<uint32_t> inputs;   // tensors read, ascending
  std::vector<uint32_t> outputs;  // tensors written, ascending; one that is also an input is updated in place
  Bytes workspace_bytes = 0;      // scratch memory of this kernel alone
};

// A life from the start of kernel `first` to the end of kernel `last`. It goes over the iteration's end if
// `last` is less.
struct TensorLife {
  uint32_t first = 0;
  uint32_t last = 0;
  bool wraps() const { return last < first; }
  friend bool operator==(const TensorLife&, const TensorLife&) = default;
};

// Returns whether `tensor` is one of a kernel's inputs or outputs.
inline bool Names(const std::vector<uint32_t>& ascending, uint32_t tensor) {
  return std::ranges::binary_search(ascending, tensor);
}

struct WorkloadTensor {
  Bytes bytes = 0;          // more than 0
  bool persistent = false;  // lives across iterations
  // The life of a tensor that is not persistent; all kernels that name it lie within. None: from the first to
  // the last of them.
  std::optional<TensorLife> life = std::nullopt;
};

struct Workload {
  std::vector<WorkloadKernel> kernels;
  std::vector<WorkloadTensor> tensors;

  Nanos IdealTime() const;  // sum of the durations
};

// Returns InvalidArgument, with what is wrong, unless ids are in range, lists ascending without repeats,
// sizes positive, durations not negative, and there is at least one kernel. Tensors may have 100 TB together,
// kernels eleven days.
absl::Status CheckWorkload(const Workload& workload);

// The greatest sums that CheckWorkload accepts, and the messages beyond them.
inline constexpr Bytes kMaxWorkloadBytes = 100'000'000'000'000;
inline constexpr Nanos kLongestWorkload = 1'000'000'000'000'000;
inline constexpr char kTooManyBytes[] = "more than 100 TB together";
inline constexpr char kTooLong[] = "kernels that last more than eleven days together";

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_WORKLOAD_H_
