// GpuShare: the interface to who says how much of a device's memory the job may have where jobs share the device
// (SPILLWAY_SHARE=gpu). A share covers chunks and external memory together. It only grows while the job launches;
// who gives it sets it by Residency::SetShare, and lowers it while the job is paused.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_GPU_SHARE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_GPU_SHARE_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace spillway::allocator {

// What a device's blocks want of it, in bytes. A snapshot.
struct ShareNeed {
  uint64_t least_bytes = 0;   // without which some launch does not fit
  uint64_t most_bytes = 0;    // that the job may have at all: its budget, or a limit of its own
  uint64_t wanted_bytes = 0;  // at most that, with which all live blocks that are not paused can be there
  uint64_t away_bytes = 0;  // of live blocks that wait for an end of idleness: wanted besides, once it comes
  uint64_t paused_bytes = 0;  // of live blocks that are paused, these included
  uint64_t taken_bytes = 0;   // chunks, and external memory
  uint64_t launches = 0;      // by now
  bool serving = true;        // false: the device has an error, or the process ends
};

// Any thread, without a lock of the residency's.
class GpuShare {
 public:
  virtual ~GpuShare() = default;
  // Has the share be `bytes` as far as the others leave them now, and not less than it is.
  virtual void Grow(uint64_t bytes) = 0;
  // What the job has paused is gone: has the share be what it still holds or wants.
  virtual void Shrink() = 0;
  // Waits until the share is at least `bytes`, and enough for any launch; ends an idleness for which blocks are
  // paused. OK also where the device does not serve any more. An error: why the caller is to be refused instead.
  // `name`: what waits, for people.
  virtual absl::Status Await(uint64_t bytes, absl::FunctionRef<std::string()> name) = 0;
  // By how much the share could grow, as far as known.
  virtual uint64_t growable_bytes() const = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_GPU_SHARE_H_
