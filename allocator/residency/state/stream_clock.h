// StreamClock: numbers the launches of each stream, and knows which numbers the GPU has completed. A use of a
// block is recorded as such a timeline value: (stream, number). A number is taken after the launch has been
// enqueued. An event that is recorded after the counter was read therefore covers every number up to that
// value. Streams may be another device's (peer copies): their events are made and recorded in the context to
// which they belong. Every component of the residency uses the clock, on any thread; reading is lock-free.
// Recording an event may fail with the driver's error.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/device_error.h"
#include "allocator/driver/stream_ref.h"
#include "io/os/atomic.h"
#include "io/os/sync.h"
#include "io/os/wait.h"

namespace spillway::allocator {

class StreamClock {
 public:
  static constexpr int kMaxStreams = 1024;

  // `context` is that of the device whose blocks are used. `error` receives the driver's results.
  StreamClock(const CudaDriver* driver, CUcontext context, DeviceError* error);
  ~StreamClock();

  // The stream's index, which it gets when it is first named. kNoStream when all indices are in use, and for
  // per-thread default streams of more contexts than a thread is expected to use (16). Lock-free except for
  // the first time. Any thread; only its own thread may name a per-thread default stream.
  StreamIndex Find(StreamRef stream);

  // The number of the launch that was just enqueued, which uses `bytes`. Lock-free. Any thread.
  uint64_t Next(StreamIndex stream, uint64_t bytes);
  // Whether the GPU has completed the timeline value, as far as is known without asking the driver.
  // Lock-free.
  bool Completed(TimelineValue value) const {
    return streams_[value.stream].completed.load(std::memory_order_acquire) >= value.number;
  }
  // Other threads cannot record on a per-thread default stream, so its own thread covers each launch itself.
  bool IsPerThread(StreamIndex stream) const { return streams_[stream].owner != 0; }
  uint64_t Current(StreamIndex stream) const { return streams_[stream].next.load(std::memory_order_acquire); }
  // Bytes used by launches that are not known to be completed (a block counts once per launch).
  uint64_t UncompletedBytes() const;
  // Launches that are numbered and not known to be completed.
  uint64_t UncompletedLaunches() const;
  // Whether the end of some launch is still to be seen: launches are uncompleted, and not only on streams on
  // which the driver refused the last event.
  bool MayComplete() const;
  // Time at which a launch of the stream, or of any stream, was last seen to have completed, in nanoseconds
  // of the system's steady clock.
  int64_t LastCompletedAt(StreamIndex stream) const {
    return streams_[stream].completed_at.load(std::memory_order_relaxed);
  }
  int64_t LastCompletedAt() const { return completed_at_.load(std::memory_order_relaxed); }
  // The part of the time since `start` (nanoseconds of the system's steady clock) in which the GPU had
  // nothing to do and that no other thread has counted yet. Counts it. Any thread.
  int64_t LostSince(int64_t start, int64_t now) {
    return UncompletedLaunches() > 0 ? 0 : TakeLost(std::max(start, LastCompletedAt()), now);
  }
  // Does the same for a time in which the GPU is known to have had nothing to do.
  int64_t TakeLost(int64_t start, int64_t now) {
    int64_t counted = lost_until_.load();
    do {
      start = std::max(start, counted);
      if (start >= now) return 0;
    } while (!lost_until_.compare_exchange_weak(counted, now));
    return now - start;
  }

  // A timeline value for all that the stream has been given up to now, launches or not: a number of its own,
  // which only a later event covers. For another thread's default stream it is the last number that the
  // stream took, since that thread covers its launches itself, and no other thread can. The value of a
  // destroyed stream completes with all that the stream was given. Any thread; lock-free except on the thread
  // of a per-thread default stream.
  TimelineValue QueuedOn(StreamIndex stream);

  // Records that launches on the stream may begin before the one ahead of them has ended. Lock-free. Any
  // thread.
  void RecordOverlap(StreamIndex stream) { streams_[stream].overlaps.store(true, std::memory_order_relaxed); }
  // Whether an event that is due by a count of launches alone is to be recorded. An event between two
  // launches that overlap keeps them apart, so the stream of such launches takes one in kOverlapEventNanos;
  // each wait for a launch covers it anyway. Lock-free. Any thread.
  bool TakesCountedEvent(StreamIndex stream);
  // An overlap is worth some 4 us (assumed): this loses 0.8 %.
  static constexpr int64_t kOverlapEventNanos = 500'000;

  // Records an event on the stream unless one covers the value already. Fails with the driver's error, and
  // with kUnavailable for a stream under capture and for another thread's default stream.
  absl::Status Cover(TimelineValue value);
  // Does the same for all that every stream has been given so far. Leaves out streams on which nothing can be
  // recorded.
  void CoverAll();
  // Asks the driver for the events recorded so far. Returns whether anything completed. The context must be
  // current.
  bool Poll();
  // Waits for the oldest recorded event of any stream; records one first if there is none. `more` becomes
  // false when nothing is uncompleted. It also becomes false when the event has not completed in
  // kLongestRunAheadNanos, because a stream may wait for something that this thread does later
  // (cuStreamWaitValue). Keeps no lock while it waits. Ends when `stopped` becomes true, and when `wait`
  // does. The context must be current.
  static constexpr int64_t kLongestRunAheadNanos = 500'000'000;
  absl::Status WaitForOldest(const os::Wait& wait, const os::Atomic<bool>& stopped, bool* more);
  // Waits for an event that covers the value, and records one first if there is none; does not wait for other
  // streams. `more` becomes false when there is none to wait for. Otherwise like WaitForOldest.
  absl::Status WaitFor(TimelineValue value, const os::Wait& wait, const os::Atomic<bool>& stopped,
                       bool* more);
  // Waits for an event. Asks often at first, then less and less, so that it can end as WaitForOldest does.
  // Fails with kUnavailable after `longest_nanos`. The context must be current.
  absl::Status Await(CUevent event, const os::Wait& wait, const os::Atomic<bool>& stopped,
                     int64_t longest_nanos = std::numeric_limits<int64_t>::max()) const;

  // Called when the stream is about to be destroyed: covers its launches, then forgets the handle. The
  // context must be current.
  void OnDestroy(CUstream stream);
  // Every stream's present counter, unless it is completed: the values that must complete before all launches
  // so far have completed.
  std::vector<TimelineValue> CurrentOfAll() const;

  // Takes an event from the pool, and gives it back. For components that record on streams (arrivals,
  // copies). The context must be current.
  absl::StatusOr<CUevent> TakeEvent();
  void GiveEvent(CUevent event);

 private:
  struct Pending {
    CUevent event = nullptr;
    CUcontext context = nullptr;  // context in which the event was made
    uint64_t number = 0;
    uint64_t bytes = 0;
  };
  // An event that is being recorded, without the lock.
  struct Record {
    bool wanted = false;
    CUstream handle = nullptr;
    CUcontext context = nullptr;
    CUevent event = nullptr;  // null: to be made
    uint64_t number = 0;
    uint64_t bytes = 0;
  };
  struct Stream {
    os::Atomic<uint64_t> next{0};         // last number taken; pairs with Current's acquire
    os::Atomic<uint64_t> completed{0};    // release in Poll, acquire in Completed
    os::Atomic<int64_t> completed_at{0};  // when `completed` last grew, for reports
    os::Atomic<uint64_t> issued_bytes{0};
    os::Atomic<uint64_t> completed_bytes{0};
    os::Atomic<uint64_t> covered{0};     // greatest number that an event was recorded for
    std::atomic<bool> overlaps{false};   // its launches may overlap; pairs with nothing
    std::atomic<int64_t> counted_at{0};  // of an overlapping stream: time of the last counted event
    os::Atomic<bool> refused{false};     // the driver refused the last event; written under mu_
    CUstream handle = nullptr;           // guarded by mu_ after publication
    CUcontext context = nullptr;         // guarded by mu_: context to which the stream belongs
    bool live = false;                   // guarded by mu_
    uint64_t owner = 0;  // per-thread default stream: key of its thread, which alone may record on it
    std::deque<Pending> pending;     // guarded by mu_, by number
    os::Atomic<uint64_t> events{0};  // size of `pending`, for reads without mu_; pairs with nothing
    int records = 0;                 // guarded by mu_: threads that pass `handle` to the driver
  };

  // Every stream that has an index.
  std::span<Stream> streams() const {
    return {streams_.get() + 1, stream_count_.load(std::memory_order_acquire) - size_t{1}};
  }
  StreamIndex IndexOf(const Stream& stream) const {
    return static_cast<StreamIndex>(&stream - streams_.get());
  }
  uint64_t KeyOf(StreamRef stream) const;
  // The key of this thread's per-thread default stream in that context.
  uint64_t PerThreadKey(CUcontext context) const;
  CUcontext ContextOf(StreamRef stream) const;
  uint64_t PlaceOf(uint64_t key) const;
  StreamIndex Insert(uint64_t key, StreamRef stream);
  StreamIndex FreeIndexLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns null when no event is unused.
  CUevent FreeEventLocked(CUcontext context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<CUevent> MakeEvent(CUcontext context) const ABSL_LOCKS_EXCLUDED(mu_);
  // Covers all that the stream has been given so far, in three parts: the decision what to record (`wanted`
  // stays false when nothing is to be recorded), the driver's calls, and the account of the result.
  absl::Status CoverNow(StreamIndex index) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status BeginRecordLocked(StreamIndex index, Record* record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RecordOn(Record* record) const ABSL_LOCKS_EXCLUDED(mu_);
  void EndRecordLocked(StreamIndex index, const Record& record, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WaitAndRetire(CUevent event, CUcontext context, const os::Wait& wait,
                             const os::Atomic<bool>& stopped, bool* more);
  // Keeps an error that ends the device. Returns `result`.
  CUresult Noted(CUresult result) const;
  // Whether the stream's oldest event has completed; if so, it is retired.
  bool PollOldest(Stream* stream) ABSL_LOCKS_EXCLUDED(mu_);
  void RetireOldestLocked(Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  static constexpr int kTableSize = 4096;  // a power of two, four times the streams

  const CudaDriver* const driver_;
  const CUcontext context_;
  DeviceError* const error_;
  std::unique_ptr<Stream[]> streams_;
  os::Atomic<uint32_t> stream_count_{1};  // index 0 is kNoStream; release in Insert
  // Open addressing; keys never move. 0 is empty, 1 is deleted. A value is stored before its key (release).
  std::unique_ptr<os::Atomic<uint64_t>[]> keys_;
  std::unique_ptr<os::Atomic<StreamIndex>[]> values_;

  os::Atomic<int64_t> completed_at_{0};  // the latest of all streams
  os::Atomic<int64_t> lost_until_{0};    // lost time is counted up to here; used by TakeLost alone

  // Released across each call of the driver, which may last as long as the GPU's queue (the load of a
  // kernel).
  mutable os::Mutex mu_{os::LockRank::kStreams};
  os::CondVar recorded_;  // a stream's `records` became 0; OnDestroy waits
  std::map<CUcontext, std::vector<CUevent>> free_events_
      ABSL_GUARDED_BY(mu_);  // by the context in which they were made
  std::vector<CUevent> waited_events_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_H_
