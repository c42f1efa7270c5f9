// StreamClock: numbers the launches of each stream, and knows which numbers the GPU has completed. A use of a
// block is recorded as such a timeline value: (stream, number). A number is taken after the launch has been
// enqueued, so that an event recorded after the counter was read covers every number up to that value.
// Streams may be another device's (peer copies): their events are made and recorded in the context that they
// belong to. Every part of the residency uses it, on any thread; reading is lock-free. Recording an event may
// fail with the driver's error.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_H_

#include <algorithm>
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

  // `context`: that of the device whose blocks are used. `error` is given what the driver answers.
  StreamClock(const CudaDriver* driver, CUcontext context, DeviceError* error);
  ~StreamClock();

  // The stream's index, given to it at its first mention. kNoStream when all indices are in use, and for
  // per-thread default streams of more contexts than a thread is expected to use (16). Lock-free but for the
  // first time. Any thread; a per-thread default stream must be named by its own thread.
  StreamIndex Find(StreamRef stream);

  // The number of the launch that was just enqueued, which touches `bytes`. Lock-free. Any thread.
  uint64_t Next(StreamIndex stream, uint64_t bytes);
  // Whether the GPU has completed the timeline value, as far as is known without asking. Lock-free.
  bool Completed(TimelineValue value) const {
    return streams_[value.stream].completed.load(std::memory_order_acquire) >= value.number;
  }
  // Other threads cannot record on a per-thread default stream: its own thread covers each launch itself.
  bool IsPerThread(StreamIndex stream) const { return streams_[stream].owner != 0; }
  uint64_t Current(StreamIndex stream) const { return streams_[stream].next.load(std::memory_order_acquire); }
  // Bytes touched by launches not known to be completed (a block counts once per launch).
  uint64_t UncompletedBytes() const;
  // Launches numbered and not known to be completed.
  uint64_t UncompletedLaunches() const;
  // Whether the end of some launch is still to be seen: launches are uncompleted, and not only on streams
  // where the driver refused the last event.
  bool MayComplete() const;
  // When a launch of the stream, or of any stream, was last seen to have completed, in nanoseconds of the
  // system's steady clock.
  int64_t LastCompletedAt(StreamIndex stream) const {
    return streams_[stream].completed_at.load(std::memory_order_relaxed);
  }
  int64_t LastCompletedAt() const { return completed_at_.load(std::memory_order_relaxed); }
  // Of the time since `start` (nanoseconds of the system's steady clock), the part in which the GPU had
  // nothing to do and which no other thread has counted yet. Counts it. Any thread.
  int64_t LostSince(int64_t start, int64_t now) {
    return UncompletedLaunches() > 0 ? 0 : TakeLost(std::max(start, LastCompletedAt()), now);
  }
  // The same for a time in which the GPU is known to have had nothing to do.
  int64_t TakeLost(int64_t start, int64_t now) {
    int64_t counted = lost_until_.load();
    do {
      start = std::max(start, counted);
      if (start >= now) return 0;
    } while (!lost_until_.compare_exchange_weak(counted, now));
    return now - start;
  }

  // What the stream has been given up to now, launches or not: a number of its own, which only a later event
  // covers. Of another thread's default stream the last that it took: it covers its launches itself, and no
  // other thread can. A destroyed stream's completes with all that it was given. Any thread; lock-free but on
  // the thread of a per-thread default stream.
  TimelineValue QueuedOn(StreamIndex stream);

  // Records an event on the stream unless one covers the value already. Fails with the driver's error;
  // kUnavailable for a stream under capture and for another thread's default stream.
  absl::Status Cover(TimelineValue value);
  // The same for all that every stream has been given so far. Streams that cannot be recorded on are left
  // out.
  void CoverAll();
  // Asks the driver for the events recorded so far. Returns whether anything completed. Context current.
  bool Poll();
  // Waits for the oldest recorded event of any stream, or records one first; `more` becomes false when
  // nothing is uncompleted, or when the event has not completed in kLongestRunAheadNanos: a stream may wait
  // for what this thread does later (cuStreamWaitValue). Holds no lock while it waits. Ends when `stopped`
  // becomes true and as `wait` says. Context current.
  static constexpr int64_t kLongestRunAheadNanos = 500'000'000;
  absl::Status WaitForOldest(const os::Wait& wait, const os::Atomic<bool>& stopped, bool* more);
  // Waits for an event that covers the value, or records one first; other streams are not waited for. `more`
  // becomes false when there is none to wait for. Otherwise as WaitForOldest.
  absl::Status WaitFor(TimelineValue value, const os::Wait& wait, const os::Atomic<bool>& stopped,
                       bool* more);
  // Waits for an event: asks often at first, then less and less, so that it can end as WaitForOldest does.
  // Context current.
  // With `longest_nanos`, kUnavailable after that time.
  absl::Status Await(CUevent event, const os::Wait& wait, const os::Atomic<bool>& stopped,
                     int64_t longest_nanos = std::numeric_limits<int64_t>::max()) const;

  // The stream is about to be destroyed: covers its launches, then forgets the handle. Context current.
  void OnDestroy(CUstream stream);
  // Every stream's counter now, unless completed: what must complete before all launched so far has.
  std::vector<TimelineValue> CurrentOfAll() const;

  // An event from the pool, and back to it, for parts that record on streams (arrivals, copies). Context
  // current.
  absl::StatusOr<CUevent> TakeEvent();
  void GiveEvent(CUevent event);

 private:
  struct Pending {
    CUevent event = nullptr;
    CUcontext context = nullptr;  // that the event was made in
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
    os::Atomic<uint64_t> covered{0};  // greatest number that an event was recorded for
    os::Atomic<bool> refused{false};  // the driver refused the last event; written under mu_
    CUstream handle = nullptr;        // guarded by mu_ after publication
    CUcontext context = nullptr;      // guarded by mu_: what the stream belongs to
    bool live = false;                // guarded by mu_
    uint64_t owner = 0;  // per-thread default stream: key of its thread, which alone may record on it
    std::deque<Pending> pending;     // guarded by mu_, by number
    os::Atomic<uint64_t> events{0};  // pending's size, for looks without mu_; pairs with nothing
    int records = 0;                 // guarded by mu_: threads that name `handle` to the driver
  };

  // Every stream that has an index.
  std::span<Stream> streams() const {
    return {streams_.get() + 1, stream_count_.load(std::memory_order_acquire) - size_t{1}};
  }
  StreamIndex IndexOf(const Stream& stream) const {
    return static_cast<StreamIndex>(&stream - streams_.get());
  }
  uint64_t KeyOf(StreamRef stream) const;
  // The key of a per-thread default stream of that context, on this thread.
  uint64_t PerThreadKey(CUcontext context) const;
  CUcontext ContextOf(StreamRef stream) const;
  uint64_t PlaceOf(uint64_t key) const;
  StreamIndex Insert(uint64_t key, StreamRef stream);
  StreamIndex FreeIndexLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: none is unused.
  CUevent FreeEventLocked(CUcontext context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<CUevent> MakeEvent(CUcontext context) const ABSL_LOCKS_EXCLUDED(mu_);
  // Covers what the stream has been given so far, in three steps: what is to be recorded (`wanted` stays false
  // when nothing is), the driver's calls, and the account of it.
  absl::Status CoverNow(StreamIndex index) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status BeginRecordLocked(StreamIndex index, Record* record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RecordOn(Record* record) const ABSL_LOCKS_EXCLUDED(mu_);
  void EndRecordLocked(StreamIndex index, const Record& record, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WaitAndRetire(CUevent event, CUcontext context, const os::Wait& wait,
                             const os::Atomic<bool>& stopped, bool* more);
  // Keeps an error that ends the device; returns `result`.
  CUresult Noted(CUresult result) const;
  // Whether the stream's oldest event has completed; it is retired then.
  bool PollOldest(Stream* stream) ABSL_LOCKS_EXCLUDED(mu_);
  void RetireOldestLocked(Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  static constexpr int kTableSize = 4096;  // a power of two, four times the streams

  const CudaDriver* const driver_;
  const CUcontext context_;
  DeviceError* const error_;
  std::unique_ptr<Stream[]> streams_;
  os::Atomic<uint32_t> stream_count_{1};  // index 0 is kNoStream; release in Insert
  // Open addressing, keys never move: 0 = empty, 1 = deleted. A value is stored before its key (release).
  std::unique_ptr<os::Atomic<uint64_t>[]> keys_;
  std::unique_ptr<os::Atomic<StreamIndex>[]> values_;

  os::Atomic<int64_t> completed_at_{0};  // the latest of the streams'
  os::Atomic<int64_t> lost_until_{0};    // up to when lost time has been counted; TakeLost alone

  // Not held across a call of the driver: one may last as long as the GPU's queue (the load of a kernel).
  mutable os::Mutex mu_{os::LockRank::kStreams};
  os::CondVar recorded_;  // a stream's `records` became 0; OnDestroy waits
  std::map<CUcontext, std::vector<CUevent>> free_events_
      ABSL_GUARDED_BY(mu_);  // by the context they were made in
  std::vector<CUevent> waited_events_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_H_
