// Delay points, mutants and tallies of the memory core, compiled in only with SPILLWAY_TEST_HOOKS. Tests
// widen races by delay points. Mutants prove that the tests would notice a broken rule. Tallies count events
// that a test waits for, and show that nothing has happened where nothing may happen: they are the only state
// that the product keeps for tests. Any thread may use them and nothing fails; without the option the macros
// are empty.

#ifndef SPILLWAY_ALLOCATOR_MEMORY_TEST_POINTS_H_
#define SPILLWAY_ALLOCATOR_MEMORY_TEST_POINTS_H_

#ifdef SPILLWAY_TEST_HOOKS

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "policy/planner/victim_index.h"

namespace spillway::allocator {

// A rule that is left out on purpose. tests/simulation catches each of them (docs/results),
// tests/allocator/residency_model_test some.
enum class Mutant : int {
  kNone,
  kSkipSectionWait,      // the evictor does not wait for read-side sections
  kPublishBeforeEvent,   // a block counts as resident before its copy has completed
  kReuseDrainingBlock,   // a block freed during a transfer is handed out before the transfer has ended
  kNoHeadroom,           // charging leaves no headroom to exchange blocks
  kTrustOldCopy,         // an earlier copy is taken for the content without a comparison
  kCopyWithoutLock,      // a copy is taken as clean without looking whether the block was taken meanwhile
  kKeepAnyCopy,          // an eviction that was taken back keeps all that it has copied
  kKeepOfLastLife,       // an eviction that was taken back keeps its copy in the block's next life
  kReuseRecordEarly,     // the record of a freed block is used for another address while it is still in use
  kPublishWithoutCheck,  // an early copy is published although a launch has taken the block
  // ---- The gate.
  kNoBarrier,          // the evictor waits for read-side sections without its barrier
  kNoFence,            // without membarrier, a launching thread enters its section without a fence
  kRecordAfterLeave,   // a launch leaves its section before it records its uses
  kPinnedUnrecorded,   // a launch under pins does not record its uses
  kDecommitGateOpen,   // the gate of a block that is decommitted stays open
  kManyUsesForgotten,  // a use that finds no free timeline value is not recorded
  kForgetUsesAtClose,  // recorded uses are dropped when the gate closes, not at the commit point
  kDecommitUsed,       // a block is decommitted although a launch has used it since it was chosen as unused
  // ---- The way out.
  kSkipUses,            // the last use is not waited for
  kCommitBeforeCopy,    // unmapped before the copies to host memory have ended
  kCommitWithoutCheck,  // committed although a launch has taken the block
  kCancelLate,          // taken back after the commit point
  kForgetRecordedUse,   // an eviction does not wait for recorded streams
  kStagingNotAwaited,   // a write is submitted before its copy to staging has ended
  // ---- The way in.
  kNoWaitForArrival,   // the launch's stream does not wait for bytes on their way to the GPU
  kFirstArrivalOnly,   // the stream waits for the first arrival only
  kReadNotAwaited,     // a chunk is copied to the GPU before it has been read
  kStagingGivenEarly,  // staging is given back before the copy from it has ended
  // ---- Frees, streams, events.
  kReuseRecorded,     // a block is handed out again before its recorded streams are done
  kRecordedOnce,      // work that a recorded stream was given after the record does not count
  kFreeKeepsCopy,     // a freed block keeps its copy
  kCoverAfterRecord,  // an event counts for launches that were numbered after it was recorded
  kReuseWaitedEvent,  // an event goes back to the pool while a thread waits for it
  // ---- Waits and wake-ups.
  kKeepTicket,          // a claim that was refused stays in the queue
  kNextNotWoken,        // a claim that leaves the queue wakes nobody
  kChunksNotSignalled,  // the end of an eviction wakes nobody
  kErrorUnseen,         // the device's first error stops nothing
  // ---- What kernels reach in host memory.
  kReachedStaysHome,    // a buffer that is reached is given back as a home of the block that has arrived
  kReachedGivenAtEnd,   // a buffer that is reached is given back as nobody's when the block leaves
  kReachedIsForgotten,  // a block that is spilled again has lost the homes that were to be reached
  // ---- What stays mapped there.
  kStandstillUndrained,  // a standstill does not wait for the work that the GPU had been given
  kExchangedRunning,     // a block is verified and leaves while others launch
  kCopiedUnhashed,       // a block is hashed beside its copy, not before
  kStandstillEndsEarly,  // a standstill ends before the bytes that come back have arrived
  kSoftFreedMapped,      // the host memory of a freed block is given back while the address still maps it
  kSoftDemoted,          // bytes go to the disk while their address still maps them
  kSoftTrusted,          // bytes that came back are taken for those that had left
  // ---- What has come back is compared.
  kArrivalTrusted,    // the comparison has no consequence
  kArrivalUnawaited,  // launches may use a block before the comparison
  // ---- Pauses: these are the last.
  kPausedGateOpen,      // the gate of a paused block that is resident stays open
  kResumeOpensGate,     // a resume opens the gate of a block that is being decommitted
  kFreeStaysPaused,     // a freed block is paused in its next life
  kNewBlocksUnpaused,   // blocks that come while all is paused from outside are not
  kOutsideStays,        // blocks that come after the resume are paused
  kClaimChecksOnce,     // a claim that has waited in the queue does not look whether a block was paused
  kPauseForgetsPins,    // a pause does not wait for launches in preparation
  kPauseSkipsSections,  // a pause does not wait for read-side sections
  kPauseUnpromised,     // no capacity is promised for paused blocks
  kDroppedKeepsCopy,    // the clean copy of a block whose bytes are dropped is kept
  kSpilledNotDropped,   // bytes that are spilled, or spilled again after a fetch was taken back, are kept
  kReturnsPaused,       // a block that was resumed and is paused again comes back
  kPauseUnheard,        // a pause does not wake the device's thread
  kResumeUnheard,       // a resume does not wake the device's thread
  kIdlenessDrops,       // an idle job's bytes that need not be kept in a pause are dropped
  kLimitUnpromised,     // no capacity is promised for blocks that leave for a lower limit of the budget
};
inline std::atomic<Mutant> active_mutant{Mutant::kNone};
// Watches each choice of victims, under the table's lock.
class SelectionWatch {
 public:
  using Index = policy::VictimIndex;
  virtual ~SelectionWatch() = default;
  virtual void Before() = 0;
  virtual void After(const Index& index, policy::Bytes needed,
                     absl::FunctionRef<Index::Facts(Index::Key)> facts,
                     absl::FunctionRef<policy::Bytes(Index::Key)> bytes,
                     const std::vector<Index::Key>& chosen) = 0;
};
inline std::atomic<SelectionWatch*> selection_watch{nullptr};
// Called at each named point when set; it may sleep or yield.
inline std::atomic<void (*)(const char* point)> delay_function{nullptr};
// Events that tests wait for, counted over all devices of the process. A tally is no delay point, because
// each delay point is one more place where the simulation may preempt.
enum class Tally : int {
  kChunks,     // chunks of a claim or an eviction were found: where (ChunkSource)
  kPoll,       // a device's thread has looked at everything once
  kMove,       // a block's change of state: from * kBlockStates + to
  kCancelled,  // an eviction was taken back: the phase that it had reached (EvictJob::Phase)
  kHandedOut,  // an allocation was served: the way (AllocationPath)
  kCount
};
// Of a claim that is served from two, each is counted.
enum class ChunkSource : int { kFree, kCreated, kRemade, kDecommitted, kEvicted, kCount };
inline constexpr int kMaxTallies = 256;
inline std::atomic<uint64_t> tallies[static_cast<int>(Tally::kCount)][kMaxTallies];
inline uint64_t TallyOf(Tally tally, int at = 0) { return tallies[static_cast<int>(tally)][at].load(); }

}  // namespace spillway::allocator

#define SPILLWAY_MUTANT(name) \
  (::spillway::allocator::active_mutant.load() == ::spillway::allocator::Mutant::name)
#define SPILLWAY_DELAY_POINT(name)                                                 \
  do {                                                                             \
    if (auto* delay_ = ::spillway::allocator::delay_function.load()) delay_(name); \
  } while (false)
#define SPILLWAY_COUNT(tally, at) \
  ::spillway::allocator::tallies[static_cast<int>(::spillway::allocator::Tally::tally)][at].fetch_add(1)

#define SPILLWAY_BEFORE_SELECTION()                                                     \
  do {                                                                                  \
    if (auto* watch_ = ::spillway::allocator::selection_watch.load()) watch_->Before(); \
  } while (false)
#define SPILLWAY_AFTER_SELECTION(index, needed, facts, bytes, chosen) \
  do {                                                                \
    if (auto* watch_ = ::spillway::allocator::selection_watch.load()) \
      watch_->After(index, needed, facts, bytes, chosen);             \
  } while (false)

#else

#define SPILLWAY_MUTANT(name) false
#define SPILLWAY_BEFORE_SELECTION() ((void)0)
#define SPILLWAY_AFTER_SELECTION(...) ((void)0)
#define SPILLWAY_DELAY_POINT(name) ((void)0)
#define SPILLWAY_COUNT(tally, at) ((void)0)

#endif  // SPILLWAY_TEST_HOOKS

#endif  // SPILLWAY_ALLOCATOR_MEMORY_TEST_POINTS_H_
