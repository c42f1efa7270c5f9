// The types of a pause: the region in which a block was allocated, who has paused it, the result of a pause,
// and the interface that a launch asks when it names a paused block. A paused block gives up its GPU memory
// and keeps its address; no launch may name it until it is resumed. Pauser carries pauses out; docs/pause.md
// describes them.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_PAUSE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_PAUSE_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "io/os/atomic.h"

namespace spillway::allocator {

// The part of the job to which a block belongs.
struct BlockRegion {
  uint32_t tag = 0;  // 0: outside of all regions
  bool keep = true;  // false: its bytes are dropped at a pause, and undefined after the resume
};

// The originators of a block's pause, as bits of one byte. A job that pauses itself is refused when it names
// the block, since nobody else would resume it. A job that was paused from outside waits. A job that was
// idle, and gave up its share of the GPU (GpuShare), waits until it has a share again.
enum class PausedBy : uint8_t { kJob = 1, kOutside = 2, kIdle = 4 };

constexpr bool IsIdle(uint8_t paused_by) { return paused_by == static_cast<uint8_t>(PausedBy::kIdle); }
// Whether only the job itself has to resume the block. It may be idle besides.
constexpr bool IsByJobAlone(uint8_t paused_by) {
  return (paused_by & ~static_cast<uint8_t>(PausedBy::kIdle)) == static_cast<uint8_t>(PausedBy::kJob);
}
// Whether a pause keeps the bytes of a block. Idleness drops nothing.
constexpr bool KeepsBytes(BlockRegion region, uint8_t paused_by) { return region.keep || IsIdle(paused_by); }

// The blocks that are paused or resumed.
struct PauseScope {
  PausedBy by = PausedBy::kJob;
  uint32_t tag = 0;  // blocks of that region; 0: all
};

// The result of a pause, in bytes of whole chunks.
struct PauseStats {
  uint64_t clean_bytes = 0;     // left without a copy: the copy in host memory or on the disk was still equal
  uint64_t host_bytes = 0;      // copied to host memory
  uint64_t disk_bytes = 0;      // copied to the disk
  uint64_t dropped_bytes = 0;   // of regions that do not keep their bytes
  uint64_t unused_bytes = 0;    // of blocks that no launch had named since they were handed out
  uint64_t pinned_bytes = 0;    // stay: something may use these blocks without naming them
  uint64_t failed_bytes = 0;    // stay: they could not be copied
  uint64_t released_bytes = 0;  // given back to the driver
  uint64_t remaining_bytes = 0;  // of chunks that the device still has for the job
  int64_t nanos = 0;
  std::string failure{};  // reason why some could not be copied
};

// Lets launches wait while the job is paused from outside. The process has one, for all devices.
class PauseGate {
 public:
  virtual ~PauseGate() = default;
  // Waits until the job is resumed from outside, or `stopped`, or the process ends. After OK the caller
  // checks again. An error is the reason to refuse the launch. `name` names the launch, for people. Launching
  // threads, without a lock.
  virtual absl::Status AwaitResume(absl::FunctionRef<std::string()> name,
                                   const os::Atomic<bool>& stopped) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_PAUSE_H_
