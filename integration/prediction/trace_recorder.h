// TraceRecorder: takes launches from the launching threads into fixed memory without a lock, and hands them
// on in order to one reader, the predictor's thread. A reader that falls too far behind loses launches and
// hears of it. Decides nothing.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_TRACE_RECORDER_H_
#define SPILLWAY_INTEGRATION_PREDICTION_TRACE_RECORDER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/memory/block_id.h"
#include "io/os/sync.h"
#include "policy/trace/trace.h"
#include "policy/trace/units.h"

namespace spillway::integration {

// Blocks in a trace are named by BlockId::raw(): the allocator gives a freed block's id to the next of its
// size.
inline policy::TraceBlock TraceBlockOf(allocator::BlockId id) { return id.raw(); }

class TraceRecorder {
 public:
  // Room for so many launches and so many block names that the reader has not seen; powers of two.
  struct Room {
    uint32_t launches = 1u << 14;
    uint32_t names = 1u << 18;
  };
  TraceRecorder() : TraceRecorder(Room()) {}
  explicit TraceRecorder(const Room& room);
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  // ---- Any thread. AddLaunch takes no lock and no memory; indices count up without gaps, in any order.
  void AddLaunch(policy::LaunchIndex index, uint64_t tag, const allocator::AccessSet& set);
  void AddAllocate(allocator::BlockId block, uint64_t bytes) { AddEvent(block, bytes); }
  void AddFree(allocator::BlockId block) { AddEvent(block, 0); }
  // The job says that a step ends here: between the launches around it.
  void AddMark();

  // ---- One thread.

  // Appends what has come since the last call to `trace`, in order; at most `most` launches. False when
  // launches were lost: the trace then starts anew at the oldest that is there.
  bool Drain(policy::Trace* trace, uint32_t most);
  // What Drain has appended of allocations since the last call: sizes of blocks.
  void TakeAllocations(std::vector<policy::BlockEvent>* allocations) { allocations->swap(allocations_); }
  // Appends the marks that came up to the last Drain: indices of the launches that follow them.
  void TakeMarks(std::deque<policy::LaunchIndex>* marks);

 private:
  static constexpr uint32_t kFew = 8;
  struct alignas(64) Slot {
    std::atomic<uint64_t> ready{
        0};  // index + 1; 0 while it is written. Release by the writer, acquire by the reader
    std::atomic<uint64_t> tag{0};
    std::atomic<uint64_t> first{0};  // of its names, counted since the start
    std::atomic<uint32_t> count{0};
    std::array<std::atomic<uint32_t>, kFew> few{};  // the names, when there are no more than these
  };
  enum class Read { kTaken, kNotThere, kLost };

  void AddEvent(allocator::BlockId block, uint64_t bytes);
  policy::LaunchIndex NextIndex() const;
  Read ReadSlot(policy::LaunchIndex index, uint64_t* tag, std::vector<policy::TraceBlock>* blocks) const;
  void AppendEventsUpTo(policy::LaunchIndex index, policy::Trace* trace);

  const uint64_t slot_mask_;
  const uint64_t name_mask_;
  const std::unique_ptr<Slot[]> slots_;
  const std::unique_ptr<std::atomic<uint32_t>[]> names_;
  std::atomic<uint64_t> names_taken_{0};  // names handed to writers since the start
  // About one past the greatest index seen: of threads that write it at once the lowest may win. NextIndex
  // mends that.
  std::atomic<policy::LaunchIndex> next_index_{0};

  os::Mutex mu_{os::LockRank::kRecorder};
  std::vector<policy::BlockEvent> events_ ABSL_GUARDED_BY(mu_);
  std::vector<policy::LaunchIndex> marks_ ABSL_GUARDED_BY(mu_);

  // The reader's own.
  policy::LaunchIndex read_ = 0;
  std::vector<policy::BlockEvent> pending_;       // taken from events_, not yet in the trace
  std::vector<policy::BlockEvent> allocations_;   // for TakeAllocations
  std::vector<policy::LaunchIndex> marks_taken_;  // for TakeMarks
  std::vector<policy::TraceBlock> scratch_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_TRACE_RECORDER_H_
