// Launches: every launch, copy and memset of one device passes here, on the application's thread. The fast
// way looks at the gates of the blocks inside a read-side section, launches and records their use: no lock
// and no allocation while everything is resident. The slow way claims what is missing, brings it in and
// launches under pins. A launch that cannot be made to fit is refused with out-of-memory, and its words are
// noted. After a device error launches go to the driver.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCHES_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCHES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "allocator/driver/refusals.h"
#include "allocator/residency/plan/plan_throttle.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/state/launch_log.h"
#include "allocator/residency/state/reach.h"
#include "allocator/residency/transfer/claim_queue.h"
#include "allocator/residency/transfer/copy_streams.h"
#include "allocator/residency/transfer/faulter.h"
#include "allocator/residency/transfer/write_sampler.h"
#include "io/os/atomic.h"

namespace spillway::allocator {

class Launches {
 public:
  struct Parts {
    LaunchLog* log = nullptr;
    ClaimQueue* claims = nullptr;
    Faulter* faulter = nullptr;
    CopyStreams* copies = nullptr;
    Reach* reach = nullptr;
    WriteSampler* writes = nullptr;
    const PlanThrottle* throttle = nullptr;
    Refusals* refusals = nullptr;
    // The driver has run out of memory: gives chunks back to it. True when the call may be worth a repeat.
    // As Residency::RepeatWhenFull, with all attempts.
    std::function<CUresult(absl::FunctionRef<CUresult()>)> repeat_when_full;
    // Pins the blocks for long: a graph will use them.
    std::function<absl::Status(const AccessSet&)> pin;
  };
  Launches(Core* core, Parts parts);

  // As the methods of Residency with these names.
  CUresult Run(const AccessSet& set, StreamRef stream, uint64_t tag, absl::FunctionRef<CUresult()> launch);
  CUresult RunPinned(const AccessSet& set, StreamRef stream, uint64_t tag,
                     absl::FunctionRef<CUresult()> launch);
  CUresult RunReachingAll(const AccessSet& set, StreamRef stream, uint64_t tag,
                          absl::FunctionRef<CUresult()> launch);
  // Claims `needed`, launches and records the uses under pins, and reports `named` as the launch's set.
  // Context current.
  CUresult RunClaimed(const AccessSet& needed, const AccessSet& named, StreamRef stream, uint64_t tag,
                      absl::FunctionRef<CUresult()> launch);
  // Every live block is on the GPU when this returns, on the host: who asks may go on with calls on any stream
  // that name no block. Waits.
  absl::Status BringAllBack();
  // Makes all blocks of the set pinned, in place, and ordered before what the stream does next; without a
  // stream, present when this returns. Waits. To be released by ClaimQueue::Release. Context current.
  absl::Status Prepare(const AccessSet& set, const StreamRef* stream, uint64_t tag, Grant* grant);

  // A stream is about to be captured; a capture has ended. Context current.
  void BeginCapture(CUstream stream);
  void EndCapture();
  // Whether work on the stream goes into a graph, or may since the driver does not tell. Context current.
  bool IsCapturing(StreamRef stream) const {
    bool capturing = false;
    (void)AskCapturing(stream, &capturing);
    return capturing;
  }
  int open_captures() const { return captures_.load(); }

  // All live blocks of the device but those that the job itself has paused.
  AccessSet LiveBlocks() const;
  // The answer to a launch while nothing is moved any more: the driver's.
  CUresult Bypass(absl::FunctionRef<CUresult()> launch) const;
  // The answer to a launch that could not be prepared: Bypass where nothing is moved any more, else a
  // refusal.
  CUresult Ended(const absl::Status& why, absl::FunctionRef<CUresult()> launch) const;
  // Makes the words of `why` those of this thread's last refusal. Returns it.
  absl::Status NoteError(const absl::Status& why) const {
    refusals_->NoteCall(why);
    return why;
  }

 private:
  // As IsCapturing; returns the driver's answer when it does not tell.
  CUresult AskCapturing(StreamRef stream, bool* capturing) const;
  CUresult InCallersContext(StreamRef stream, absl::FunctionRef<CUresult()> call) const;
  // Bytes of the set, in whole chunks.
  uint64_t BytesOf(const AccessSet& set) const;
  // Whether every gate of the set is open; then also its bytes. Inside a read-side section.
  bool AllOpen(const AccessSet& set, uint64_t* bytes) const;
  // After the uses are recorded: records an event where one is due, and reports the launch to the observer.
  void AfterLaunch(const AccessSet& set, StreamIndex stream, policy::LaunchIndex index, uint64_t tag);
  // At a launch's entry: whether the observer wants the calls OnEnter and OnReady for it.
  bool MarkEntry(StreamRef stream) const;
  // Right before the real launch.
  void MarkReady(StreamRef stream) const;
  // Remembers a set that is larger than all remembered ones; only then takes the lock.
  void NoteSet(const AccessSet& set, uint64_t bytes) {
    if (__builtin_expect(bytes > core_->table.LargestLaunchBytes(), 0)) RememberSet(set);
  }
  void RememberSet(const AccessSet& set);
  // Waits while uncompleted launches use more than the bound, or those of the stream are too far ahead. Without
  // lock or section.
  absl::Status WaitForRunAhead(uint64_t bytes, StreamIndex stream, uint64_t tag);
  bool EndsAtRunAhead(uint64_t bytes, StreamIndex stream, uint64_t tag, absl::FunctionRef<CUresult()> launch,
                      CUresult* answer);
  // With a plan in force: the stream's launch that must have completed before its next one goes.
  TimelineValue ValueToWaitFor(StreamIndex stream) const;
  // `hashes_queued` is read after the launch: whether hashes of the pinned blocks were enqueued beside it.
  CUresult RunPrepared(const AccessSet& needed, const AccessSet& named, StreamIndex index, uint64_t tag,
                       absl::FunctionRef<CUresult()> launch, const bool& hashes_queued, Grant* grant);
  std::string NameOfLaunch(uint64_t tag) const;
  absl::Status AwaitArrival(CUevent arrival);
  // For reports: an event shows when the stream had done all else, and only waited.
  void NoteWaiter(StreamRef stream, const Grant& grant);
  CUresult Refuse(const absl::Status& why) const;
  std::string Advice(uint64_t tag, size_t blocks) const;
  absl::Status WithAdvice(const absl::Status& why, uint64_t tag, size_t blocks) const;

  Core* const core_;
  LaunchLog* const log_;
  ClaimQueue* const claims_;
  Faulter* const faulter_;
  CopyStreams* const copies_;
  Reach* const reach_;
  WriteSampler* const writes_;
  const PlanThrottle* const throttle_;
  Refusals* const refusals_;
  const std::function<CUresult(absl::FunctionRef<CUresult()>)> repeat_when_full_;
  const std::function<absl::Status(const AccessSet&)> pin_;
  os::Atomic<int> captures_{0};  // streams under capture
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_LAUNCHES_H_
