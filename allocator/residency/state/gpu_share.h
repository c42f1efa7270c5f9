// GpuShare: the interface to the authority that shares a device's memory among jobs (SPILLWAY_SHARE=gpu). A
// share covers chunks and external memory together. It only grows while the job launches; the authority sets
// it by Residency::SetShare, and lowers it while the job is paused.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_GPU_SHARE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_GPU_SHARE_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace spillway::allocator {

// The needs of a device's blocks, in bytes. A snapshot.
struct ShareNeed {
  uint64_t least_bytes = 0;   // less than that does not fit some launch
  uint64_t most_bytes = 0;    // most that the job may have: its budget, or a limit of its own
  uint64_t wanted_bytes = 0;  // enough for all live blocks that are not paused, at most most_bytes
  uint64_t away_bytes = 0;    // of live blocks that come back when idleness ends: wanted besides then
  uint64_t paused_bytes = 0;  // of live blocks that are paused, away_bytes included
  uint64_t taken_bytes = 0;   // chunks, and external memory
  uint64_t launches = 0;      // by now
  bool serving = true;        // false: the device has an error, or the process ends
};

// Any thread, without a lock of the residency.
class GpuShare {
 public:
  virtual ~GpuShare() = default;
  // Raises the share to `bytes` as far as the other jobs leave them now; never lowers it.
  virtual void Grow(uint64_t bytes) = 0;
  // Lowers the share to what the job still has or wants, after its paused blocks have left.
  virtual void Shrink() = 0;
  // Waits until the share is at least `bytes`, and enough for any launch; ends an idleness for which blocks
  // are paused. Returns OK also when the device no longer serves. An error is the reason to refuse the
  // caller. `name` names the waiting call, for people.
  virtual absl::Status Await(uint64_t bytes, absl::FunctionRef<std::string()> name) = 0;
  // Bytes by which the share could grow, as far as known.
  virtual uint64_t growable_bytes() const = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_GPU_SHARE_H_
