// StreamClock: numbers the launches of each stream and knows which numbers the GPU has completed. A block's stamp is
// a (stream, number) pair. Numbers are taken after the launch has been enqueued, so an event recorded after reading
// the counter covers every number up to the value read. Streams may be those of other devices (peer copies): events for
// them are made and recorded in the context that they belong to.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
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

  // `context`: that of the device whose blocks are stamped. `error` learns what the driver answers.
  StreamClock(const CudaDriver* driver, CUcontext context, DeviceError* error);
  ~StreamClock();

  // The index of the stream, given to it at its first mention. kNoStream when all indices are in use. Lock-free but
  // for that first time. Any thread; a per-thread default stream must be named by its own thread. kNoStream also for
  // the per-thread default streams of more foreign contexts than a thread may be expected to use.
  StreamIndex Find(StreamRef stream);

  // The number of the launch that was just enqueued, which touches `bytes`. Lock-free. Any thread.
  uint64_t Next(StreamIndex stream, uint64_t bytes);
  // Whether the GPU has completed the stamp, as far as is known without asking it. Lock-free.
  bool Completed(Stamp stamp) const {
    return streams_[stamp.stream].completed.load(std::memory_order_acquire) >= stamp.number;
  }
  // A per-thread default stream cannot be recorded on by others: its thread covers each launch itself.
  bool IsPerThread(StreamIndex stream) const { return streams_[stream].owner != 0; }
  uint64_t Current(StreamIndex stream) const { return streams_[stream].next.load(std::memory_order_acquire); }
  // Bytes touched by launches not known to be completed (a block counts once per launch).
  uint64_t UncompletedBytes() const;
  // Launches numbered and not known to be completed.
  uint64_t UncompletedLaunches() const;
  // Whether the end of some launch is still to be seen: there are uncompleted ones, and not only on streams where the driver
  // refused the last event.
  bool MayComplete() const;
  // When a launch of the stream, or of any, was last seen to have completed: nanoseconds of the system's steady clock.
  int64_t LastCompletedAt(StreamIndex stream) const {
    return streams_[stream].completed_at.load(std::memory_order_relaxed);
  }
  int64_t LastCompletedAt() const { return completed_at_.load(std::memory_order_relaxed); }
  // Of the time since `start` (nanoseconds of the system's steady clock), what the GPU has spent with nothing to do and
  // nobody has counted yet: several may wait at the same time. Counts it. Any thread.
  int64_t LostSince(int64_t start, int64_t now) {
    return UncompletedLaunches() > 0 ? 0 : TakeLost(std::max(start, LastCompletedAt()), now);
  }
  // The same of a time in which the GPU is known to have had nothing to do.
  int64_t TakeLost(int64_t start, int64_t now) {
    int64_t counted = lost_until_.load();
    do {
      start = std::max(start, counted);
      if (start >= now) return 0;
    } while (!lost_until_.compare_exchange_weak(counted, now));
    return now - start;
  }

  // Records an event on the stream unless one covers `stamp` already. Fails with the driver's error; a stream under
  // capture cannot be recorded on (kUnavailable).
  absl::Status Cover(Stamp stamp);
  // The same for whatever every stream has been given so far. Streams that cannot be recorded on are left out.
  void CoverAll();
  // The same for whatever the stream's counter is now, when nobody else is at it: for launching threads under
  // pressure, which must not wait for a lock.
  void TryCoverNow(StreamIndex stream);
  // Asks the driver for the events recorded so far. Returns whether anything completed. Context current.
  bool Poll();
  // Waits for the oldest recorded event of any stream, or records one first; `more` becomes false when nothing is
  // uncompleted. Holds no lock while it waits. Ends when `stopped` becomes true and as `wait` says. Context current.
  absl::Status WaitForOldest(const os::Wait& wait, const os::Atomic<bool>& stopped, bool* more);
  // Waits for an event that covers the stamp, or records one first; other streams may do what they like. `more` becomes
  // false when there is none to wait for. As above.
  absl::Status WaitFor(Stamp stamp, const os::Wait& wait, const os::Atomic<bool>& stopped, bool* more);
  // Waits for an event: asks for it often at first, then less and less, so that it can end as above. Context current.
  absl::Status Await(CUevent event, const os::Wait& wait, const os::Atomic<bool>& stopped) const;

  // The stream is about to be destroyed: covers what it holds, then forgets the handle. Context current.
  void OnDestroy(CUstream stream);
  // Every stream's counter now: what must complete before everything launched so far has.
  std::vector<Stamp> CurrentOfAll() const;

  // An event from the pool and back, for others who record on streams (arrivals, copies). Context current.
  absl::StatusOr<CUevent> TakeEvent();
  void GiveEvent(CUevent event);

 private:
  struct Pending {
    CUevent event = nullptr;
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
    std::deque<Pending> pending;  // guarded by mu_, oldest first
  };

  uint64_t KeyOf(StreamRef stream) const;
  // Whose thread must record on it: KeyOf of a per-thread default stream of that context, on this thread.
  uint64_t PerThreadKey(CUcontext context) const;
  CUcontext ContextOf(StreamRef stream) const;
  StreamIndex Insert(uint64_t key, StreamRef stream);
  absl::Status CoverLocked(StreamIndex index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RecordLocked(StreamIndex index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<CUevent> TakeEventLocked(CUcontext context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WaitAndRetire(CUevent event, CUcontext context, const os::Wait& wait,
                             const os::Atomic<bool>& stopped);
  // Keeps an error that ends the device; returns what it was given.
  CUresult Noted(CUresult result) const;
  bool PollLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

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

  mutable os::Mutex mu_{os::LockRank::kStreams};
  std::map<CUcontext, std::vector<CUevent>> free_events_
      ABSL_GUARDED_BY(mu_);  // by the context they were made in
  std::vector<CUevent> waited_events_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_STREAM_CLOCK_H_
