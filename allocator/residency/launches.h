// Launches: the way of every launch, copy and memset of one device, on the application's thread. The fast
// path reads the gates of the blocks inside a read-side section, launches and records the use of the blocks;
// it takes no lock and allocates nothing while everything is resident. The slow path claims what is missing,
// brings it in and launches under pins. A launch that cannot be made to fit is refused with out-of-memory,
// and its message is noted. After a device error launches go to the driver.

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
    // Called when the driver has run out of memory: Residency::RepeatWhenFull with all attempts.
    std::function<CUresult(absl::FunctionRef<CUresult()>)> repeat_when_full;
    // Adds long-term pins to the blocks, because a graph will use them.
    std::function<absl::Status(const AccessSet&)> pin;
  };
  Launches(Core* core, Parts parts);

  // The methods of Residency with these names.
  CUresult Run(const AccessSet& set, StreamRef stream, uint64_t tag, absl::FunctionRef<CUresult()> launch);
  CUresult RunPinned(const AccessSet& set, StreamRef stream, uint64_t tag,
                     absl::FunctionRef<CUresult()> launch);
  CUresult RunReachingAll(const AccessSet& set, StreamRef stream, uint64_t tag,
                          absl::FunctionRef<CUresult()> launch);
  // Claims `needed`, launches and records the uses under pins, and reports `named` as the launch's set. The
  // context must be current.
  CUresult RunClaimed(const AccessSet& needed, const AccessSet& named, StreamRef stream, uint64_t tag,
                      absl::FunctionRef<CUresult()> launch);
  // Brings every live block to the GPU and waits, on the host, until all are there. The caller may then go on
  // with calls on any stream that name no block.
  absl::Status BringAllBack();
  // Pins all blocks of the set, maps them and fetches them, and orders this before the next work of the
  // stream. When there is no stream, waits until the blocks are there. May wait. The caller releases the
  // grant by ClaimQueue::Release. The context must be current.
  absl::Status Prepare(const AccessSet& set, const StreamRef* stream, uint64_t tag, Grant* grant);

  // Called when a stream is about to be captured, and when a capture has ended. The context must be current.
  void BeginCapture(CUstream stream);
  void EndCapture();
  // Whether work on the stream goes into a graph, or may go into one because the driver does not answer. The
  // context must be current.
  bool IsCapturing(StreamRef stream) const {
    bool capturing = false;
    (void)AskCapturing(stream, &capturing);
    return capturing;
  }
  int open_captures() const { return captures_.load(); }

  // All live blocks of the device except those that the job itself has paused.
  AccessSet LiveBlocks() const;
  // Answers a launch while nothing is moved any more: with the driver's result.
  CUresult Bypass(absl::FunctionRef<CUresult()> launch) const;
  // Answers a launch that could not be prepared: Bypass where nothing is moved any more, else a refusal.
  CUresult Ended(const absl::Status& why, absl::FunctionRef<CUresult()> launch) const;
  // Keeps the message of `why` as this thread's last refusal. Returns `why`.
  absl::Status RecordError(const absl::Status& why) const {
    refusals_->RecordCall(why);
    return why;
  }

 private:
  // IsCapturing, with the driver's error when it does not answer.
  CUresult AskCapturing(StreamRef stream, bool* capturing) const;
  CUresult InCallersContext(StreamRef stream, absl::FunctionRef<CUresult()> call) const;
  // Bytes of the set, in whole chunks.
  uint64_t BytesOf(const AccessSet& set) const;
  // Whether every gate of the set is open; if so, sets *bytes to the set's bytes. Called inside a read-side
  // section.
  bool AllOpen(const AccessSet& set, uint64_t* bytes) const;
  // Called after the uses are recorded. Records an event where one is due, and reports the launch to the
  // observer.
  void AfterLaunch(const AccessSet& set, StreamIndex stream, policy::LaunchIndex index, uint64_t tag);
  // Called at a launch's entry: whether the observer wants the calls OnEnter and OnReady for it.
  bool MarkEntry(StreamRef stream) const;
  // Called right before the real launch.
  void MarkReady(StreamRef stream) const;
  // Remembers a set that is larger than all remembered ones. Takes the lock only for such a set.
  void RecordSet(const AccessSet& set, uint64_t bytes) {
    if (__builtin_expect(bytes > core_->table.LargestLaunchBytes(), 0)) RememberSet(set);
  }
  void RememberSet(const AccessSet& set);
  // Waits while uncompleted launches use more bytes than the bound, or while those of the stream are too far
  // ahead. The caller has no lock and is in no section.
  absl::Status WaitForRunAhead(uint64_t bytes, StreamIndex stream, uint64_t tag);
  bool EndsAtRunAhead(uint64_t bytes, StreamIndex stream, uint64_t tag, absl::FunctionRef<CUresult()> launch,
                      CUresult* answer);
  // The launch of the stream that must have completed before its next one goes, while a plan is in force.
  TimelineValue ValueToWaitFor(StreamIndex stream) const;
  // Launches under the pins of `grant` and releases it. `hashes_queued` is read after the launch: it tells
  // whether hashes of the pinned blocks were enqueued beside it.
  CUresult RunPrepared(const AccessSet& needed, const AccessSet& named, StreamIndex index, uint64_t tag,
                       absl::FunctionRef<CUresult()> launch, const bool& hashes_queued, Grant* grant);
  std::string NameOfLaunch(uint64_t tag) const;
  absl::Status AwaitArrival(CUevent arrival);
  // Records an event that shows when the stream had done all its other work and only waited for blocks. For
  // reports.
  void RecordWaiter(StreamRef stream, const Grant& grant);
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
