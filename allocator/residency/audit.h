// AuditedResidency: a device's residency in audit mode (docs/audit.md). Launches come one at a time, each on
// its own thread, and are waited for. Before each, every block that it does not name is unmapped and keeps
// its chunks. A kernel that reaches a block by a pointer that the hooks missed then faults, and is known by
// that. Faults go to an AuditObserver, which knows names; a launch is otherwise answered as by
// DeviceResidency. A fault, work that failed before the launch, and an unmapping that fails end the audit:
// launches then no longer take turns.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_AUDIT_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_AUDIT_H_

#include <chrono>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "allocator/residency/device_residency.h"
#include "io/os/atomic.h"
#include "io/os/clock.h"
#include "io/os/thread.h"

namespace spillway::allocator {

class AuditedResidency final : public DeviceResidency {
 public:
  // `parts.audit` must not be null.
  AuditedResidency(const ResidencyOptions& options, const ResidencyParts& parts);
  ~AuditedResidency() override { Shutdown(); }

  // All launches, whatever their form, and copies. An empty set is audited, too: nothing at all is mapped
  // then.
  CUresult Run(const AccessSet& set, StreamRef stream, uint64_t tag,
               absl::FunctionRef<CUresult()> launch) override;
  CUresult RunPinned(const AccessSet& set, StreamRef stream, uint64_t tag,
                     absl::FunctionRef<CUresult()> launch) override;
  CUresult RunReachingAll(const AccessSet& set, StreamRef stream, uint64_t tag,
                          absl::FunctionRef<CUresult()> launch) override;
  // A block with a long-term pin stays mapped, also where nothing is evicted.
  using Residency::Pin;
  absl::Status Pin(const AccessSet& set, PinReason reason, std::vector<PinnedBlock>* pinned) override;
  // Ends the audit: where nothing leaves the GPU, nothing can be missed.
  absl::Status StopEvicting() override;
  // Maps everything again first: launches pass through from then on.
  void Shutdown() override;

  // For tests: blocks that are unmapped now.
  size_t UnmappedBlocks() const;

 private:
  enum class Reach { kNamed, kAll };
  using Clock = os::SteadyClock;

  CUresult RunAudited(const AccessSet& set, Reach reach, StreamRef stream, uint64_t tag,
                      absl::FunctionRef<CUresult()> launch);
  CUresult RunInTurn(const AccessSet& set, Reach reach, StreamRef stream, uint64_t tag,
                     absl::FunctionRef<CUresult()> launch);
  CUresult PassThrough(const AccessSet& set, Reach reach, StreamRef stream, uint64_t tag,
                       absl::FunctionRef<CUresult()> launch);
  // Unmaps the other blocks, launches, waits for the stream. In turn, with the set claimed.
  CUresult LaunchAlone(const AccessSet& visible, StreamRef stream, absl::FunctionRef<CUresult()> launch);
  // Waits until the GPU has nothing to do, as far as that may be asked.
  CUresult Drain(StreamRef stream);
  absl::Status UnmapAllBut(const AccessSet& visible);
  bool TransfersUnderWayLocked(const TableLock& lock, const std::unordered_set<uint32_t>& visible)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Maps the set again. In turn.
  absl::Status RemapSet(const AccessSet& set);
  void RemapAll();

  // Waits for this thread's turn. No lock is kept during a turn, which waits for the GPU. False: the wait
  // ended, the device has shut down, or `until` has passed.
  bool TakeTurn(Clock::time_point until = Clock::time_point::max());
  void EndTurn();
  bool IsMyTurn() const;

  AuditObserver* const observer_;
  os::Atomic<bool> over_{false};         // nothing is unmapped any more: after a fault, or evictions stopped
  os::Atomic<bool> stop_wanted_{false};  // evictions stopped in the middle of a turn of the same thread
  os::Atomic<bool> reported_captured_{false};
  uint64_t number_ = 0;  // of the launch that has its turn
  bool taken_ ABSL_GUARDED_BY(core_->table.mu) = false;
  os::ThreadId taker_ ABSL_GUARDED_BY(core_->table.mu);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_AUDIT_H_
