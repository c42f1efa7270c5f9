#include "allocator/residency/state/stream_clock.h"

#include <algorithm>

#include "allocator/memory/test_points.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/per_thread.h"
#include "io/os/thread.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kEmptyKey = 0, kDeletedKey = 1;

// Queries of an event one after the other before a waiting thread begins to sleep in between.
constexpr int kLooksWithoutPause = 8;

// Any address that is this thread's alone names its per-thread default stream; those of other devices'
// contexts have an entry each.
constexpr size_t kOtherContexts = 16;
struct ThreadIdentity {
  char own = 0;
  CUcontext other_contexts[kOtherContexts] = {};
};

// Whether a per-thread default stream with this key is the calling thread's.
bool IsOwnThreads(uint64_t key) {
  return key - reinterpret_cast<uint64_t>(&os::PerThread<ThreadIdentity>()) < sizeof(ThreadIdentity);
}

uint64_t HashOf(uint64_t key) { return (key * 0x9E3779B97F4A7C15u) >> 40; }

}  // namespace

StreamClock::StreamClock(const CudaDriver* driver, CUcontext context, DeviceError* error)
    : driver_(driver),
      context_(context),
      error_(error),
      streams_(new Stream[kMaxStreams]),
      keys_(new os::Atomic<uint64_t>[kTableSize]()),
      values_(new os::Atomic<StreamIndex>[kTableSize]()) {}

StreamClock::~StreamClock() = default;  // events stay with the driver: its state may be gone by now

uint64_t StreamClock::PerThreadKey(CUcontext context) const {
  // Odd: no stream's address.
  if (context == context_) return reinterpret_cast<uint64_t>(&os::PerThread<ThreadIdentity>().own) | 1;
  for (CUcontext& entry : os::PerThread<ThreadIdentity>().other_contexts) {
    if (entry == nullptr) entry = context;
    if (entry == context) return reinterpret_cast<uint64_t>(&entry) | 1;
  }
  return kEmptyKey;
}

uint64_t StreamClock::KeyOf(StreamRef stream) const {
  const bool other_context = stream.context != nullptr && stream.context != context_;
  if (stream.IsPerThread()) return PerThreadKey(other_context ? stream.context : context_);
  if (stream.handle == nullptr || stream.handle == CU_STREAM_LEGACY) {
    // No stream's handle: those are aligned to more than 4.
    return other_context ? reinterpret_cast<uint64_t>(stream.context) | 2 : 2;
  }
  return reinterpret_cast<uint64_t>(stream.handle) & ~uint64_t{1};
}

// Where the key is in the table; kTableSize: nowhere.
uint64_t StreamClock::PlaceOf(uint64_t key) const {
  for (uint64_t probes = 0, at = HashOf(key); probes < kTableSize; ++probes, ++at) {
    const uint64_t found = keys_[at % kTableSize].load(std::memory_order_acquire);
    if (found == key) return at % kTableSize;
    if (found == kEmptyKey) break;
  }
  return kTableSize;
}

StreamIndex StreamClock::Find(StreamRef stream) {
  const uint64_t key = KeyOf(stream);
  if (key == kEmptyKey) return kNoStream;
  const uint64_t at = PlaceOf(key);
  return at == kTableSize ? Insert(key, stream) : values_[at].load(std::memory_order_relaxed);
}

CUcontext StreamClock::ContextOf(StreamRef stream) const {
  if (stream.IsDefault()) return stream.context != nullptr ? stream.context : context_;
  CUcontext context = nullptr;
  // Refused for the streams of some green contexts: those belong to this device's primary context.
  const CUresult result = driver_->cuStreamGetCtx(stream.handle, &context);
  return result == CUDA_SUCCESS && context != nullptr ? context : context_;
}

StreamIndex StreamClock::Insert(uint64_t key, StreamRef stream) {
  os::MutexLock lock(&mu_);
  if (const uint64_t at = PlaceOf(key); at != kTableSize) return values_[at].load(std::memory_order_relaxed);
  const StreamIndex index = FreeIndexLocked();
  if (index == kNoStream) return kNoStream;
  uint64_t place = HashOf(key) % kTableSize;  // there are fewer streams than places: one is free
  while (keys_[place].load(std::memory_order_relaxed) > kDeletedKey) place = (place + 1) % kTableSize;
  streams_[index].handle = stream.Explicit();
  streams_[index].context = ContextOf(stream);
  streams_[index].live = true;
  streams_[index].owner = stream.IsPerThread() ? key : 0;
  streams_[index].refused.store(false, std::memory_order_relaxed);
  values_[place].store(index, std::memory_order_relaxed);
  keys_[place].store(key, std::memory_order_release);
  return index;
}

// That of a dead stream which has nothing under way, so that a job that makes many streams keeps few to look at. Else a
// new index while there are some, then that of the dead stream with the fewest events that were not seen to complete.
// Its numbers go on, and events are seen in the order in which they were recorded: the new stream's launches count as
// completed no earlier than the old one's.
StreamIndex StreamClock::FreeIndexLocked() {
  const Stream* best = nullptr;
  for (const Stream& stream : streams()) {
    if (stream.live || (best != nullptr && best->pending.size() <= stream.pending.size())) continue;
    best = &stream;
    if (best->pending.empty() && best->completed.load() == best->next.load()) return IndexOf(*best);
  }
  const uint32_t count = stream_count_.load(std::memory_order_relaxed);
  if (count == kMaxStreams) return best == nullptr ? kNoStream : IndexOf(*best);
  stream_count_.store(count + 1, std::memory_order_release);
  return static_cast<StreamIndex>(count);
}

uint64_t StreamClock::Next(StreamIndex stream, uint64_t bytes) {
  Stream& s = streams_[stream];
  if (bytes != 0) s.issued_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return s.next.fetch_add(1, std::memory_order_acq_rel) + 1;
}

uint64_t StreamClock::UncompletedBytes() const {
  uint64_t sum = 0;
  for (const Stream& stream : streams()) {
    const uint64_t completed = stream.completed_bytes.load(std::memory_order_relaxed);
    const uint64_t issued = stream.issued_bytes.load(std::memory_order_relaxed);
    if (issued > completed) sum += issued - completed;
  }
  return sum;
}

uint64_t StreamClock::UncompletedLaunches() const {
  uint64_t sum = 0;
  for (const Stream& stream : streams()) {
    const uint64_t completed = stream.completed.load(std::memory_order_relaxed);
    const uint64_t next = stream.next.load(std::memory_order_relaxed);
    if (next > completed) sum += next - completed;
  }
  return sum;
}

bool StreamClock::MayComplete() const {
  for (const Stream& stream : streams()) {
    const uint64_t completed = stream.completed.load(std::memory_order_relaxed);
    if (stream.next.load(std::memory_order_relaxed) <= completed) continue;
    // What was covered before the refusal can still be seen to end.
    const bool covered = stream.covered.load(std::memory_order_relaxed) > completed;
    if (covered || !stream.refused.load(std::memory_order_relaxed)) return true;
  }
  return false;
}

absl::StatusOr<CUevent> StreamClock::TakeEventLocked(CUcontext context) {
  std::vector<CUevent>& unused = free_events_[context];
  if (!unused.empty()) {
    const CUevent event = unused.back();
    unused.pop_back();
    return event;
  }
  CUevent event = nullptr;
  // An event can only be recorded on streams of the context that it was made in.
  ScopedContext scope(driver_, context);
  SPILLWAY_RETURN_IF_ERROR(
      driver_->ToStatus(driver_->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "creating an event"));
  return event;
}

absl::StatusOr<CUevent> StreamClock::TakeEvent() {
  os::MutexLock lock(&mu_);
  return TakeEventLocked(context_);
}

void StreamClock::GiveEvent(CUevent event) {
  os::MutexLock lock(&mu_);
  free_events_[context_].push_back(event);
}

absl::Status StreamClock::CoverLocked(StreamIndex index) {
  absl::Status status = RecordLocked(index);
  streams_[index].refused.store(!status.ok() && !absl::IsUnavailable(status), std::memory_order_relaxed);
  return status;
}

absl::Status StreamClock::RecordLocked(StreamIndex index) {
  Stream& stream = streams_[index];
  // Read before the record: everything numbered up to here was enqueued before the event.
  uint64_t number = stream.next.load(std::memory_order_acquire);
  const uint64_t bytes = stream.issued_bytes.load(std::memory_order_relaxed);
  if (number <= stream.covered.load(std::memory_order_relaxed)) return absl::OkStatus();
  if (!stream.live) return absl::OkStatus();  // OnDestroy covered it
  if (stream.owner != 0 && stream.owner != PerThreadKey(stream.context)) {
    return absl::UnavailableError("a per-thread default stream is covered by its own thread");
  }
  ScopedContext scope(driver_, stream.context);  // which a default stream's handle means its stream in
  SPILLWAY_RETURN_IF_ERROR(driver_->ToStatus(Noted(scope.entered()), "entering the context of a stream"));
  // An event recorded in a capture covers nothing, and asking for it would end the job's capture.
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = Noted(driver_->cuStreamIsCapturing(stream.handle, &capturing));
  // The legacy stream cannot be asked while another captures.
  if (asked != CUDA_SUCCESS && asked != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    return driver_->ToStatus(asked, "asking whether a stream captures");
  }
  if (asked != CUDA_SUCCESS || capturing != CU_STREAM_CAPTURE_STATUS_NONE) {
    return absl::UnavailableError("a stream that captures is covered when it has ended");
  }
  SPILLWAY_ASSIGN_OR_RETURN(const CUevent event, TakeEventLocked(stream.context));
  const CUresult result = Noted(driver_->cuEventRecord(event, stream.handle));
  if (result != CUDA_SUCCESS) {
    free_events_[stream.context].push_back(event);
    return driver_->ToStatus(result, "recording an event on a stream of the application");
  }
  if (SPILLWAY_MUTANT(kCoverAfterRecord)) number = stream.next.load(std::memory_order_acquire);
  stream.pending.push_back({event, stream.context, number, bytes});
  stream.covered.store(number, std::memory_order_release);
  return absl::OkStatus();
}

TimelineValue StreamClock::QueuedOn(StreamIndex stream) {
  if (IsPerThread(stream) && !IsOwnThreads(streams_[stream].owner)) return {stream, Current(stream)};
  const TimelineValue value{stream, Next(stream, 0)};
  if (IsPerThread(stream)) Cover(value).IgnoreError();  // this thread may not come back
  return value;
}

absl::Status StreamClock::Cover(TimelineValue value) {
  if (streams_[value.stream].covered.load(std::memory_order_acquire) >= value.number) return absl::OkStatus();
  os::MutexLock lock(&mu_);
  return CoverLocked(value.stream);
}

void StreamClock::CoverAll() {
  os::MutexLock lock(&mu_);
  for (const Stream& stream : streams()) CoverLocked(IndexOf(stream)).IgnoreError();
}

void StreamClock::TryCoverNow(StreamIndex stream) {
  if (!mu_.TryLock()) return;
  CoverLocked(stream).IgnoreError();  // a later event covers the same launches
  mu_.Unlock();
}

bool StreamClock::PollLocked() {
  bool progress = false;
  for (Stream& stream : streams()) {
    while (!stream.pending.empty()) {
      const Pending& oldest = stream.pending.front();
      if (!error_->Completed(driver_->cuEventQuery(oldest.event))) break;
      // Never backwards: OnDestroy may have set more.
      if (oldest.number > stream.completed.load(std::memory_order_relaxed)) {
        stream.completed_bytes.store(oldest.bytes, std::memory_order_relaxed);
        stream.completed.store(oldest.number, std::memory_order_release);
        const int64_t now = os::Clock::System()->NowNanos();
        stream.completed_at.store(now, std::memory_order_relaxed);
        completed_at_.store(now, std::memory_order_relaxed);
      }
      const bool waited =
          std::find(waited_events_.begin(), waited_events_.end(), oldest.event) != waited_events_.end();
      if (!waited || SPILLWAY_MUTANT(kReuseWaitedEvent)) free_events_[oldest.context].push_back(oldest.event);
      stream.pending.pop_front();
      progress = true;
    }
    if (!stream.live && stream.pending.empty())  // all that it was given came before its last event
      stream.completed.store(stream.next.load(std::memory_order_relaxed), std::memory_order_release);
  }
  return progress;
}

bool StreamClock::Poll() {
  os::MutexLock lock(&mu_);
  return PollLocked();
}

CUresult StreamClock::Noted(CUresult result) const {
  error_->Note(result);
  return result;
}

absl::Status StreamClock::WaitForOldest(const os::Wait& wait, const os::Atomic<bool>& stopped, bool* more) {
  CUevent event = nullptr;
  CUcontext context = nullptr;  // that it was made in
  {
    os::MutexLock lock(&mu_);
    if (PollLocked()) return absl::OkStatus();
    for (const Stream& stream : streams()) {
      if (stream.pending.empty() && stream.next.load() > stream.completed.load())
        CoverLocked(IndexOf(stream)).IgnoreError();
      if (stream.pending.empty()) continue;
      event = stream.pending.front().event;
      context = stream.pending.front().context;
      break;
    }
    *more = event != nullptr;
    if (event == nullptr) return absl::OkStatus();
    waited_events_.push_back(event);  // not reused while we wait
  }
  return WaitAndRetire(event, context, wait, stopped, more);
}

absl::Status StreamClock::WaitFor(TimelineValue value, const os::Wait& wait, const os::Atomic<bool>& stopped,
                                  bool* more) {
  CUevent event = nullptr;
  CUcontext context = nullptr;
  {
    os::MutexLock lock(&mu_);
    PollLocked();
    if (Completed(value)) return absl::OkStatus();
    Stream& stream = streams_[value.stream];
    *more = stream.covered.load() >= value.number || CoverLocked(value.stream).ok();
    const auto covers = [&](const Pending& pending) { return pending.number >= value.number; };
    const auto first = std::find_if(stream.pending.begin(), stream.pending.end(), covers);
    *more = *more && first != stream.pending.end();
    if (!*more) return absl::OkStatus();
    event = first->event;
    context = first->context;
    waited_events_.push_back(event);
  }
  return WaitAndRetire(event, context, wait, stopped, more);
}

// No waiting call of the driver: it could not be ended. Mostly the end of one launch is waited for.
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
    if (looks < kLooksWithoutPause) continue;
    if (paused > longest_nanos) return absl::UnavailableError("not done yet");
    os::SleepFor(std::chrono::nanoseconds(pause));
    paused += pause;
    pause = std::min(kLongestPause, pause + pause / 4);
  }
}

// An event noted in waited_events_, made in `context`.
absl::Status StreamClock::WaitAndRetire(CUevent event, CUcontext context, const os::Wait& wait,
                                        const os::Atomic<bool>& stopped, bool* more) {
  absl::Status status = Await(event, wait, stopped, kLongestRunAheadNanos);
  os::MutexLock lock(&mu_);
  // The thread that removes the last waiter's note gives the event back, if it was retired meanwhile.
  waited_events_.erase(std::find(waited_events_.begin(), waited_events_.end(), event));
  const bool still_waited =
      std::find(waited_events_.begin(), waited_events_.end(), event) != waited_events_.end();
  bool pending = false;
  for (const Stream& stream : streams()) {
    for (const Pending& p : stream.pending) pending = pending || p.event == event;
  }
  if (!pending && !still_waited) free_events_[context].push_back(event);
  PollLocked();
  if (!absl::IsUnavailable(status)) return status;
  *more = false;
  return absl::OkStatus();
}

void StreamClock::OnDestroy(CUstream stream) {
  StreamIndex index = kNoStream;
  {
    os::MutexLock lock(&mu_);
    const uint64_t at = PlaceOf(KeyOf({stream, false}));
    if (at == kTableSize) return;
    index = values_[at].load(std::memory_order_relaxed);
    const bool covered = CoverLocked(index).ok();
    keys_[at].store(kDeletedKey, std::memory_order_release);
    streams_[index].live = !covered;
    if (covered) return;
  }
  // Nothing can be recorded on it any more (a capture, a dead context): wait for the work itself.
  const uint64_t number = streams_[index].next.load();
  const uint64_t bytes = streams_[index].issued_bytes.load();
  Noted(driver_->cuStreamSynchronize(stream));
  os::MutexLock lock(&mu_);
  streams_[index].live = false;
  if (streams_[index].completed.load() >= number) return;
  streams_[index].completed_bytes.store(bytes, std::memory_order_relaxed);
  streams_[index].completed.store(number, std::memory_order_release);
}

std::vector<TimelineValue> StreamClock::CurrentOfAll() const {
  std::vector<TimelineValue> values;
  for (const Stream& stream : streams()) {
    const TimelineValue value{IndexOf(stream), stream.next.load(std::memory_order_acquire)};
    if (!Completed(value)) values.push_back(value);
  }
  return values;
}

}  // namespace spillway::allocator
