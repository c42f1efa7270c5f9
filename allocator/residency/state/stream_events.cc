// The events of a StreamClock: recording them on streams, querying them, waiting for them. Each call of the
// driver is made without the lock.
#include <algorithm>

#include "allocator/memory/test_points.h"
#include "allocator/residency/state/stream_clock.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/thread.h"

namespace spillway::allocator {
namespace {

// Queries of an event, one after the other, before a waiting thread begins to sleep in between.
constexpr int kPollsWithoutPause = 8;

}  // namespace

CUevent StreamClock::FreeEventLocked(CUcontext context) {
  std::vector<CUevent>& unused = free_events_[context];
  if (unused.empty()) return nullptr;
  const CUevent event = unused.back();
  unused.pop_back();
  return event;
}

absl::StatusOr<CUevent> StreamClock::MakeEvent(CUcontext context) const {
  CUevent event = nullptr;
  // An event can only be recorded on streams of the context in which it was made.
  ScopedContext scope(driver_, context);
  SPILLWAY_RETURN_IF_ERROR(
      driver_->ToStatus(driver_->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "creating an event"));
  return event;
}

absl::StatusOr<CUevent> StreamClock::TakeEvent() {
  {
    os::MutexLock lock(&mu_);
    if (const CUevent event = FreeEventLocked(context_); event != nullptr) return event;
  }
  return MakeEvent(context_);
}

void StreamClock::GiveEvent(CUevent event) {
  os::MutexLock lock(&mu_);
  free_events_[context_].push_back(event);
}

absl::Status StreamClock::BeginRecordLocked(StreamIndex index, Record* record) {
  Stream& stream = streams_[index];
  // The counter is read before the event is recorded, so everything numbered up to here was enqueued before
  // the event.
  record->number = stream.next.load(std::memory_order_acquire);
  record->bytes = stream.issued_bytes.load(std::memory_order_relaxed);
  // OnDestroy has covered a destroyed stream.
  record->wanted = record->number > stream.covered.load(std::memory_order_relaxed) && stream.live;
  if (!record->wanted) return absl::OkStatus();
  if (stream.owner != 0 && stream.owner != PerThreadKey(stream.context)) {
    record->wanted = false;
    return absl::UnavailableError("a per-thread default stream is covered by its own thread");
  }
  record->handle = stream.handle;
  record->context = stream.context;
  record->event = FreeEventLocked(stream.context);
  ++stream.records;
  return absl::OkStatus();
}

absl::Status StreamClock::RecordOn(Record* record) const {
  ScopedContext scope(driver_, record->context);  // in which a default stream's handle means its stream
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(Noted(scope.entered()), "entering the context of a stream"));
  // An event recorded in a capture covers nothing, and a query of it would end the job's capture.
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = Noted(driver_->cuStreamIsCapturing(record->handle, &capturing));
  // The legacy stream cannot be asked while another stream captures.
  if (asked != CUDA_SUCCESS && asked != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    return driver_->ToStatus(asked, "asking whether a stream captures");
  }
  if (asked != CUDA_SUCCESS || capturing != CU_STREAM_CAPTURE_STATUS_NONE) {
    return absl::UnavailableError("a stream that captures is covered when it has ended");
  }
  if (record->event == nullptr) {
    SPILLWAY_ASSIGN_OR_RETURN(record->event, MakeEvent(record->context));
  }
  return driver_->ToStatus(Noted(driver_->cuEventRecord(record->event, record->handle)),
                           "recording an event on a stream of the application");
}

void StreamClock::EndRecordLocked(StreamIndex index, const Record& record, const absl::Status& status) {
  Stream& stream = streams_[index];
  stream.refused.store(!status.ok() && !absl::IsUnavailable(status), std::memory_order_relaxed);
  if (--stream.records == 0) recorded_.NotifyAll();
  if (!status.ok()) {
    if (record.event != nullptr) free_events_[record.context].push_back(record.event);
    return;
  }
  uint64_t number = record.number;
  if (SPILLWAY_MUTANT(kCoverAfterRecord)) number = stream.next.load(std::memory_order_acquire);
  // Two threads may record at once. Each event covers its number, whichever of them the driver got first.
  auto place = stream.pending.end();
  while (place != stream.pending.begin() && std::prev(place)->number > number) --place;
  stream.pending.insert(place, {record.event, record.context, number, record.bytes});
  stream.events.store(stream.pending.size(), std::memory_order_relaxed);
  if (number > stream.covered.load()) stream.covered.store(number, std::memory_order_release);
}

absl::Status StreamClock::CoverNow(StreamIndex index) {
  Record record;
  {
    os::MutexLock lock(&mu_);
    const absl::Status begun = BeginRecordLocked(index, &record);
    if (!record.wanted) return begun;
  }
  absl::Status status = RecordOn(&record);
  os::MutexLock lock(&mu_);
  EndRecordLocked(index, record, status);
  return status;
}

absl::Status StreamClock::Cover(TimelineValue value) {
  if (streams_[value.stream].covered.load(std::memory_order_acquire) >= value.number) return absl::OkStatus();
  return CoverNow(value.stream);
}

void StreamClock::CoverAll() {
  for (const Stream& stream : streams()) Cover({IndexOf(stream), stream.next.load()}).IgnoreError();
}

void StreamClock::RetireOldestLocked(Stream* stream) {
  const Pending& oldest = stream->pending.front();
  // The value never goes backwards: OnDestroy may have stored a larger one.
  if (oldest.number > stream->completed.load(std::memory_order_relaxed)) {
    stream->completed_bytes.store(oldest.bytes, std::memory_order_relaxed);
    stream->completed.store(oldest.number, std::memory_order_release);
    const int64_t now = os::Clock::System()->NowNanos();
    stream->completed_at.store(now, std::memory_order_relaxed);
    completed_at_.store(now, std::memory_order_relaxed);
  }
  const bool waited =
      std::find(waited_events_.begin(), waited_events_.end(), oldest.event) != waited_events_.end();
  if (!waited || SPILLWAY_MUTANT(kReuseWaitedEvent)) free_events_[oldest.context].push_back(oldest.event);
  stream->pending.pop_front();
  stream->events.store(stream->pending.size(), std::memory_order_relaxed);
}

// Queries the oldest event of the stream without the lock. Another thread may see its end first, and the
// event may be recorded elsewhere before the query; the answer is ignored in both cases.
bool StreamClock::PollOldest(Stream* stream) {
  Pending oldest;
  {
    os::MutexLock lock(&mu_);
    if (stream->pending.empty()) {
      if (!stream->live)  // all of its work came before its last event
        stream->completed.store(stream->next.load(std::memory_order_relaxed), std::memory_order_release);
      return false;
    }
    oldest = stream->pending.front();
  }
  if (!error_->Completed(driver_->cuEventQuery(oldest.event))) return false;
  os::MutexLock lock(&mu_);
  const bool still_there = !stream->pending.empty() && stream->pending.front().event == oldest.event &&
                           stream->pending.front().number == oldest.number;
  if (still_there) RetireOldestLocked(stream);
  return true;
}

bool StreamClock::Poll() {
  bool progress = false;
  for (Stream& stream : streams()) {
    const bool finished = stream.next.load() <= stream.completed.load();
    if (finished && stream.events.load(std::memory_order_relaxed) == 0) continue;
    while (PollOldest(&stream)) progress = true;
  }
  return progress;
}

CUresult StreamClock::Noted(CUresult result) const {
  error_->Record(result);
  return result;
}

absl::Status StreamClock::WaitForOldest(const os::Wait& wait, const os::Atomic<bool>& stopped, bool* more) {
  if (Poll()) return absl::OkStatus();
  Pending oldest;
  for (const Stream& stream : streams()) {
    const uint64_t completed = stream.completed.load();
    if (stream.next.load() > completed && stream.events.load() == 0) CoverNow(IndexOf(stream)).IgnoreError();
    os::MutexLock lock(&mu_);
    if (stream.completed.load() > completed) return absl::OkStatus();  // another thread has seen the end
    if (stream.pending.empty()) continue;
    oldest = stream.pending.front();
    waited_events_.push_back(oldest.event);  // not reused while we wait
    break;
  }
  *more = oldest.event != nullptr;
  return *more ? WaitAndRetire(oldest.event, oldest.context, wait, stopped, more) : absl::OkStatus();
}

absl::Status StreamClock::WaitFor(TimelineValue value, const os::Wait& wait, const os::Atomic<bool>& stopped,
                                  bool* more) {
  Poll();
  const bool covered = Cover(value).ok();
  Pending first;
  {
    os::MutexLock lock(&mu_);
    if (Completed(value)) return absl::OkStatus();
    const std::deque<Pending>& pending = streams_[value.stream].pending;
    const auto covers = [&](const Pending& p) { return p.number >= value.number; };
    const auto found = std::find_if(pending.begin(), pending.end(), covers);
    *more = covered && found != pending.end();
    if (!*more) return absl::OkStatus();
    first = *found;
    waited_events_.push_back(first.event);
  }
  return WaitAndRetire(first.event, first.context, wait, stopped, more);
}

// Uses no waiting call of the driver, because such a call could not be ended. Most waits are for the end of
// one launch.
absl::Status StreamClock::Await(CUevent event, const os::Wait& wait, const os::Atomic<bool>& stopped,
                                int64_t longest_nanos) const {
  constexpr int64_t kShortestPause = 5'000, kLongestPause = 100'000;
  int64_t pause = kShortestPause, paused = 0;
  for (int looks = 0;; ++looks) {
    const CUresult result = Noted(driver_->cuEventQuery(event));
    if (result == CUDA_SUCCESS) return absl::OkStatus();
    if (result != CUDA_ERROR_NOT_READY) return driver_->ToStatus(result, "waiting for the device");
    if (stopped.load()) return absl::CancelledError("Spillway has shut down");
    if (absl::Status status = wait.Check(); !status.ok()) return status;
    if (looks < kPollsWithoutPause) continue;
    if (paused > longest_nanos) return absl::UnavailableError("not done yet");
    os::SleepFor(std::chrono::nanoseconds(pause));
    paused += pause;
    pause = std::min(kLongestPause, pause + pause / 4);
  }
}

// Waits for an event that is in waited_events_ and was made in `context`.
absl::Status StreamClock::WaitAndRetire(CUevent event, CUcontext context, const os::Wait& wait,
                                        const os::Atomic<bool>& stopped, bool* more) {
  absl::Status status = Await(event, wait, stopped, kLongestRunAheadNanos);
  {
    os::MutexLock lock(&mu_);
    // The thread that removes the last waiter's entry gives the event back, if the event was retired
    // meanwhile.
    waited_events_.erase(std::find(waited_events_.begin(), waited_events_.end(), event));
    const bool still_waited =
        std::find(waited_events_.begin(), waited_events_.end(), event) != waited_events_.end();
    bool pending = false;
    for (const Stream& stream : streams()) {
      for (const Pending& p : stream.pending) pending = pending || p.event == event;
    }
    if (!pending && !still_waited) free_events_[context].push_back(event);
  }
  Poll();
  if (!absl::IsUnavailable(status)) return status;
  *more = false;
  return absl::OkStatus();
}

}  // namespace spillway::allocator
