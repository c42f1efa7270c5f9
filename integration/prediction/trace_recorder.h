// TraceRecorder takes launches from launching threads into fixed memory without a lock, and gives them in
// order to one reader, the predictor's thread. A reader that falls too far behind loses launches, and Drain
// reports it. The recorder decides nothing.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_TRACE_RECORDER_H_
#define SPILLWAY_INTEGRATION_PREDICTION_TRACE_RECORDER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/memory/block_id.h"
#include "io/os/sync.h"
#include "policy/model/units.h"
#include "policy/trace/trace.h"

namespace spillway::integration {

// Returns a block's name in a trace, BlockId::raw(). The allocator gives a freed block's id to the next block
// of its size.
inline policy::TraceBlock TraceBlockOf(allocator::BlockId id) { return id.raw(); }

class TraceRecorder {
 public:
  // The numbers of launches and of block names that the rings keep for a reader that has not taken them;
  // powers of two.
  struct RingSizes {
    uint32_t launches = 1u << 14;
    uint32_t names = 1u << 18;
  };
  TraceRecorder() : TraceRecorder(RingSizes()) {}
  explicit TraceRecorder(const RingSizes& sizes);
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  // ---- Thread-safe. AddLaunch takes no lock and no memory. Indices count up without gaps; threads may add
  // theirs in any order.
  void AddLaunch(policy::LaunchIndex index, uint64_t tag, const allocator::AccessSet& set);
  void AddAllocate(allocator::BlockId block, uint64_t bytes, uint64_t copied_bytes) {
    AddEvent(block, bytes, copied_bytes);
  }
  void AddFree(allocator::BlockId block) { AddEvent(block, 0, 0); }
  // Records that the job has ended an iteration, between the launches reported before and after.
  void AddMark();
  // Returns the tag of that launch, as long as its entry is there: for about the last 16,384 launches. Takes
  // no lock.
  std::optional<uint64_t> TagOf(policy::LaunchIndex index) const;

  // ---- For the reader's thread alone.

  // Appends to `trace`, in order, what has come since the last call, with at most `most` launches. Returns
  // false if launches were lost: the trace then starts anew at the oldest launch that is still there.
  bool Drain(policy::Trace* trace, uint32_t most);
  // Takes the allocations that Drain has appended since the last call: the sizes of blocks.
  void TakeAllocations(std::vector<policy::BlockEvent>* allocations) { allocations->swap(allocations_); }
  // Appends the marks that came up to the last Drain, each as the index of the launch that follows it.
  void TakeMarks(std::deque<policy::LaunchIndex>* marks);

 private:
  static constexpr uint32_t kFew = 8;
  struct alignas(64) Entry {
    // index + 1; 0 while the entry is written. Released by the writer, acquired by the reader.
    std::atomic<uint64_t> ready{0};
    std::atomic<uint64_t> tag{0};
    std::atomic<uint64_t> first{0};  // place of its names, counted since the start
    std::atomic<uint32_t> count{0};
    std::array<std::atomic<uint32_t>, kFew> few{};  // the names, if there are no more than these
  };
  enum class Read { kTaken, kNotThere, kLost };

  void AddEvent(allocator::BlockId block, uint64_t bytes, uint64_t copied_bytes);
  policy::LaunchIndex NextIndex() const;
  Read ReadEntry(policy::LaunchIndex index, uint64_t* tag, std::vector<policy::TraceBlock>* blocks) const;
  void AppendEventsUpTo(policy::LaunchIndex index, policy::Trace* trace);

  const uint64_t entry_mask_;
  const uint64_t name_mask_;
  const std::unique_ptr<Entry[]> entries_;
  const std::unique_ptr<std::atomic<uint32_t>[]> names_;
  std::atomic<uint64_t> names_taken_{0};  // names handed to writers since the start
  // About one past the greatest index seen: the lowest may win among threads that store it at once. NextIndex
  // makes up for that.
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
