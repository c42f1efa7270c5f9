// AuditedResidency: a device's residency in audit mode (docs/audit.md). Launches come one at a time, each on
// its own thread, and each is waited for. Before a launch every block that it does not name is unmapped; the
// block keeps its chunks. A kernel that reaches such a block by a pointer that the hooks missed faults, and
// the fault identifies the launch. Faults go to an AuditObserver, which knows names; in all else a launch is
// answered as by DeviceResidency. The audit ends with a fault, with work that failed before the launch, or
// when an unmapping fails. Launches no longer take turns then.

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

  // Take all launches, whatever their form, and copies. A launch with an empty set is audited, too: nothing
  // at all is mapped for it.
  CUresult Run(const AccessSet& set, StreamRef stream, uint64_t tag,
               absl::FunctionRef<CUresult()> launch) override;
  CUresult RunPinned(const AccessSet& set, StreamRef stream, uint64_t tag,
                     absl::FunctionRef<CUresult()> launch) override;
  CUresult RunReachingAll(const AccessSet& set, StreamRef stream, uint64_t tag,
                          absl::FunctionRef<CUresult()> launch) override;
  // A block with a long-term pin stays mapped, even where nothing is evicted.
  using Residency::Pin;
  absl::Status Pin(const AccessSet& set, PinReason reason, std::vector<PinnedBlock>* pinned) override;
  // Ends the audit: no address can be missed once nothing leaves the GPU.
  absl::Status StopEvicting() override;
  // Maps everything again first, since launches pass through from then on.
  void Shutdown() override;

  // Number of blocks that are unmapped now. For tests.
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
  // Unmaps the other blocks, launches, and waits for the stream. The caller has the turn and has claimed the
  // set.
  CUresult LaunchAlone(const AccessSet& visible, StreamRef stream, absl::FunctionRef<CUresult()> launch);
  // Waits until the GPU has nothing to do, as far as it can be asked (see Drain in the source about
  // captures).
  CUresult Drain(StreamRef stream);
  absl::Status UnmapAllBut(const AccessSet& visible);
  bool TransfersUnderWayLocked(const TableLock& lock, const std::unordered_set<uint32_t>& visible)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_->table.mu);
  // Maps the set again. The caller has the turn.
  absl::Status RemapSet(const AccessSet& set);
  void RemapAll();

  // Waits for this thread's turn. A turn waits for the GPU, so no lock is kept during it. Returns false when
  // the wait was ended, when the device has shut down, or when `until` has passed.
  bool TakeTurn(Clock::time_point until = Clock::time_point::max());
  void EndTurn();
  bool IsMyTurn() const;

  AuditObserver* const observer_;
  os::Atomic<bool> over_{false};         // the audit has ended: nothing is unmapped any more
  os::Atomic<bool> stop_wanted_{false};  // evictions stopped during a turn of the same thread
  os::Atomic<bool> reported_captured_{false};
  uint64_t number_ = 0;  // of the launch that has its turn
  bool taken_ ABSL_GUARDED_BY(core_->table.mu) = false;
  os::ThreadId taker_ ABSL_GUARDED_BY(core_->table.mu);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_AUDIT_H_
