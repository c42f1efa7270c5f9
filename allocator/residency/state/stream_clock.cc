#include "allocator/residency/state/stream_clock.h"

#include <algorithm>

#include "io/os/clock.h"
#include "io/os/per_thread.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kEmptyKey = 0, kDeletedKey = 1;

// A per-thread default stream is named by an address that belongs to this thread alone. Streams in other
// devices' contexts have an entry each.
constexpr size_t kOtherContexts = 16;
struct ThreadIdentity {
  char own = 0;
  CUcontext other_contexts[kOtherContexts] = {};
};

// Whether a per-thread default stream with this key is the calling thread's.
bool IsOwnThreads(uint64_t key) {
  return key - reinterpret_cast<uint64_t>(&os::PerThread<ThreadIdentity>()) < sizeof(ThreadIdentity);
}

uint64_t BucketOf(uint64_t key) { return (key * 0x9E3779B97F4A7C15u) >> 40; }

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
  // The key is odd, so it is no stream's address.
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
    // This key is no stream's handle: handles are aligned to more than 4.
    return other_context ? reinterpret_cast<uint64_t>(stream.context) | 2 : 2;
  }
  return reinterpret_cast<uint64_t>(stream.handle) & ~uint64_t{1};
}

// The place of the key in the table; kTableSize when it is not there.
uint64_t StreamClock::PlaceOf(uint64_t key) const {
  for (uint64_t probes = 0, at = BucketOf(key); probes < kTableSize; ++probes, ++at) {
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
  // The driver refuses this for the streams of some green contexts, which belong to this device's primary
  // context.
  const CUresult result = driver_->cuStreamGetCtx(stream.handle, &context);
  return result == CUDA_SUCCESS && context != nullptr ? context : context_;
}

StreamIndex StreamClock::Insert(uint64_t key, StreamRef stream) {
  const CUcontext context = ContextOf(stream);
  os::MutexLock lock(&mu_);
  if (const uint64_t at = PlaceOf(key); at != kTableSize) return values_[at].load(std::memory_order_relaxed);
  const StreamIndex index = FreeIndexLocked();
  if (index == kNoStream) return kNoStream;
  uint64_t place = BucketOf(key) % kTableSize;  // there are fewer streams than places, so one is free
  while (keys_[place].load(std::memory_order_relaxed) > kDeletedKey) place = (place + 1) % kTableSize;
  streams_[index].handle = stream.Explicit();
  streams_[index].context = context;
  streams_[index].live = true;
  streams_[index].owner = stream.IsPerThread() ? key : 0;
  streams_[index].refused.store(false, std::memory_order_relaxed);
  streams_[index].overlaps.store(false, std::memory_order_relaxed);
  values_[place].store(index, std::memory_order_relaxed);
  keys_[place].store(key, std::memory_order_release);
  return index;
}

// Prefers the index of a dead stream that has nothing under way, so that a job that makes many streams leaves
// few to poll. The next choice is a new index while there are some, then the index of the dead stream with
// the fewest events that were not seen to complete. The numbers of such an index go on, and events are seen
// in the order in which they were recorded. The new stream's launches thus count as completed no earlier than
// the old stream's.
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

bool StreamClock::TakesCountedEvent(StreamIndex stream) {
  Stream& s = streams_[stream];
  if (!s.overlaps.load(std::memory_order_relaxed)) return true;
  const int64_t now = os::Clock::System()->NowNanos();
  int64_t last = s.counted_at.load(std::memory_order_relaxed);
  // Of threads that meet here one records.
  return now - last >= kOverlapEventNanos && s.counted_at.compare_exchange_strong(last, now);
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
    // Launches that were covered before the refusal can still be seen to end.
    const bool covered = stream.covered.load(std::memory_order_relaxed) > completed;
    if (covered || !stream.refused.load(std::memory_order_relaxed)) return true;
  }
  return false;
}

TimelineValue StreamClock::QueuedOn(StreamIndex stream) {
  if (IsPerThread(stream) && !IsOwnThreads(streams_[stream].owner)) return {stream, Current(stream)};
  const TimelineValue value{stream, Next(stream, 0)};
  if (IsPerThread(stream)) Cover(value).IgnoreError();  // this thread may not come back
  return value;
}

void StreamClock::OnDestroy(CUstream stream) {
  const uint64_t at = PlaceOf(KeyOf({stream, false}));
  if (at == kTableSize) return;
  const StreamIndex index = values_[at].load(std::memory_order_relaxed);
  Stream& gone = streams_[index];
  const bool covered = CoverNow(index).ok();
  // When nothing can be recorded on the stream any more (a capture, a dead context), the work itself is
  // waited for.
  const uint64_t number = gone.next.load();
  const uint64_t bytes = gone.issued_bytes.load();
  if (!covered) Noted(driver_->cuStreamSynchronize(stream));
  os::MutexLock lock(&mu_);
  while (gone.records > 0) recorded_.Wait(&mu_);  // other threads pass the handle to the driver
  gone.live = false;
  keys_[at].store(kDeletedKey, std::memory_order_release);
  if (covered || gone.completed.load() >= number) return;
  gone.completed_bytes.store(bytes, std::memory_order_relaxed);
  gone.completed.store(number, std::memory_order_release);
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
