// TraceLog: PyTorch's memory history for the blocks of Spillway. It calls the attached trackers (NCCL
// registration, profilers) for each event. While history is on, it keeps the latest events of each device,
// which a snapshot merges with native's. The level of recordHistory decides which stack belongs to an event.
// SpillwayAllocator has the one object. Thread-safe; no call fails.

#ifndef SPILLWAY_INTEGRATION_TORCH_TRACE_LOG_H_
#define SPILLWAY_INTEGRATION_TORCH_TRACE_LOG_H_

#include <c10/util/ApproximateClock.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "integration/torch/compat_types.h"
#include "io/os/sync.h"

namespace spillway::integration {

class TraceLog {
 public:
  using Entry = torch_cuda::TraceEntry;
  using Tracker = torch_cuda::AllocatorTraceTracker;
  using RecordContext = torch_cuda::RecordContext;
  using Context = std::shared_ptr<c10::GatheredContext>;

  // As CUDAAllocator::recordHistory. Thread-safe.
  void Configure(bool enabled, torch_cuda::CreateContextFn recorder, size_t max_entries, RecordContext when,
                 bool clear, const std::vector<std::string>& skip_actions);
  void AddTracker(Tracker tracker);

  // Returns the caller's stack if history keeps stacks at `level`, null otherwise. It may take the GIL or
  // worse, so the caller holds no lock.
  Context Gather(RecordContext level) const;

  // The text that new events carry: the names of the compiled regions that this thread is in.
  void PushCompileContext(const std::string& text);
  void PopCompileContext();

  // Returns whether Record has anything to do; a cheap test for the fast path.
  bool active() const { return active_.load(std::memory_order_relaxed); }

  // Records one event of a device. `user_metadata` is PyTorch's current text. Trackers run inside, under our
  // lock, as native calls them under its own; they must not allocate device memory.
  void Record(Entry::Action action, c10::DeviceIndex device, size_t address, size_t bytes, void* stream,
              Context context, const std::string& user_metadata);

  // Adds our events of each device to `traces` (index: device), in order of time.
  void MergeInto(std::vector<std::vector<Entry>>* traces);

 private:
  // Constant after construction: turns readings of the clock counter into microseconds.
  c10::ApproximateClockToUnixTimeConverter clock_;

  std::atomic<bool> active_{false};  // written under mu_; a stale read loses or adds one event
  std::atomic<RecordContext> level_{RecordContext::NEVER};
  std::atomic<torch_cuda::CreateContextFn> recorder_{nullptr};

  os::Mutex mu_{os::LockRank::kRegistry};
  bool history_ ABSL_GUARDED_BY(mu_) = false;
  size_t max_entries_ ABSL_GUARDED_BY(mu_) = 1;
  std::unordered_set<int> skipped_ ABSL_GUARDED_BY(mu_);
  std::vector<Tracker> trackers_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<int, std::deque<Entry>> events_ ABSL_GUARDED_BY(mu_);  // by device, oldest first
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_TRACE_LOG_H_
