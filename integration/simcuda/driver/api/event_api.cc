// Driver functions: events. An event is a place in a stream (its work number) and the time when it was
// reached. Events are used again after they are destroyed, never freed: a queued record of a destroyed event
// finds a generation that is not its own and writes nothing.
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/execution/event.h"
#include "integration/simcuda/driver/execution/ipc_event.h"
#include "integration/simcuda/driver/graphs/capture.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/machine/hardware_time.h"

namespace simcuda {
namespace {

struct Event : HandleObject {
  std::mutex mutex;  // guards the rest
  unsigned int flags = 0;
  const Context* context = nullptr;  // in which it was made
  uint64_t generation = 0;           // one per record
  Stream* stream = nullptr;          // null: not recorded yet
  uint64_t number = 0;
  int64_t time_ns = 0;
  CapturedPlace captured;               // of the last record, when that was on a capturing stream
  std::shared_ptr<SharedEvent> shared;  // of an interprocess event
};

struct EventPool {
  std::mutex mutex;
  std::vector<Event*> all, unused;  // guarded by mutex
};
EventPool& GetPool() {
  static EventPool* pool = new EventPool;
  return *pool;
}

class RecordWork : public Work {
 public:
  RecordWork(Event* event, uint64_t generation)
      : event_(event), generation_(generation), shared_(event->shared) {
    if (shared_ != nullptr) shared_number_ = shared_->Record();
  }
  void Run(Stream& stream, bool skip) override {
    const bool timed = ActiveProfile() != nullptr;
    const int64_t now = timed ? stream.begin_ns() : NowNs();
    stream.set_end_ns(now);
    if (shared_ != nullptr) shared_->Reach(shared_number_);
    std::lock_guard<std::mutex> lock(event_->mutex);
    if (event_->generation == generation_) event_->time_ns = now;
  }
  const char* name() const override { return "event record"; }
  bool is_operation() const override { return false; }

 private:
  Event* const event_;
  const uint64_t generation_;
  const std::shared_ptr<SharedEvent> shared_;
  uint64_t shared_number_ = 0;
};

Event* EventFromHandle(CUevent handle) { return LiveObject<Event>(handle, HandleKind::kEvent); }

// The place that the event stands for now; stream null when it was never recorded.
struct Place {
  Stream* stream;
  uint64_t number;
  int64_t time_ns;
  unsigned int flags;
  CapturedPlace captured;
  std::shared_ptr<SharedEvent> shared;
  uint64_t shared_number = 0;  // of the last record of any process
  bool reached() const {
    if (shared != nullptr) return shared->IsReached(shared_number);
    return stream == nullptr || stream->IsDone(number);
  }
};
Place PlaceOf(Event& event) {
  std::lock_guard<std::mutex> lock(event.mutex);
  const uint64_t shared_number = event.shared == nullptr ? 0 : event.shared->recorded();
  return {event.stream,   event.number, event.time_ns, event.flags,
          event.captured, event.shared, shared_number};
}

CUresult EnterEvent(CUevent handle, Event** event) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  *event = EventFromHandle(handle);
  if (*event == nullptr) return BadHandle(handle, "a CUevent", CUDA_ERROR_INVALID_HANDLE);
  const Context* context = CurrentContext();
  return context == nullptr ? CUDA_SUCCESS : context->status();
}

CUevent MakeEvent(unsigned int flags, const Context* context, std::shared_ptr<SharedEvent> shared) {
  Event* event = nullptr;
  {
    std::lock_guard<std::mutex> lock(GetPool().mutex);
    std::vector<Event*>& unused = GetPool().unused;
    if (!unused.empty()) {
      event = unused.back();
      unused.pop_back();
    }
  }
  if (event == nullptr) {
    event = new Event;
    std::lock_guard<std::mutex> lock(GetPool().mutex);
    GetPool().all.push_back(event);
  }
  std::lock_guard<std::mutex> lock(event->mutex);
  event->flags = flags;
  event->context = context;
  event->stream = nullptr;
  event->captured = {};
  event->shared = std::move(shared);
  event->Live(HandleKind::kEvent);
  return reinterpret_cast<CUevent>(event);
}

// The handle is none any more. False when it was none before.
bool EndEvent(Event* event) {
  std::lock_guard<std::mutex> lock(event->mutex);
  if (!event->IsLive(HandleKind::kEvent)) return false;
  event->Die();
  event->shared.reset();
  ++event->generation;  // a record that is still queued is not ours any more
  return true;
}

template <Form kForm>
CUresult Record(CUevent handle, CUstream stream_handle) {
  Event* event = nullptr;
  Stream* stream = nullptr;
  if (CUresult result = EnterEvent(handle, &event); result != CUDA_SUCCESS) return result;
  if (CUresult result = EnterStream(stream_handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  bool capturing = false;
  if (CUresult result = EnterQueueing(*stream, &capturing); result != CUDA_SUCCESS) return result;
  CallTime time(Call::kEventRecord);
  if (!capturing) time.Spend();
  std::lock_guard<std::mutex> lock(event->mutex);
  if (event->context != stream->context()) return CUDA_ERROR_INVALID_HANDLE;
  if (capturing) {
    event->stream = nullptr;
    return RecordPlace(*stream, &event->captured);
  }
  event->captured = {};
  event->stream = stream;
  event->time_ns = 0;
  event->number = stream->context()->Enqueue(*stream, new RecordWork(event, ++event->generation));
  return CUDA_SUCCESS;
}

template <Form kForm>
CUresult RecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_EVENT_RECORD_EXTERNAL) {  // in a capture a node, which graphs here do not have
    Stream* found = nullptr;
    bool capturing = false;
    if (CUresult result = EnterStream(stream, kForm, &found); result != CUDA_SUCCESS) return result;
    const CUresult result = EnterQueueing(*found, &capturing);
    if (result != CUDA_SUCCESS || capturing)
      return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
  }
  return Record<kForm>(event, stream);
}

template <Form kForm>
CUresult WaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags) {
  Event* event = nullptr;
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(stream_handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (CUresult result = EnterEvent(handle, &event); result != CUDA_SUCCESS) return result;
  if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
  const Place place = PlaceOf(*event);
  bool done = false;
  if (CUresult result =
          WaitForPlace(*stream, place.captured, place.stream != nullptr || place.shared != nullptr, &done);
      result != CUDA_SUCCESS || done) {
    return result;
  }
  CallTime time(Call::kStreamWait);
  time.Spend();
  if (place.reached() || (place.stream == stream && place.shared == nullptr)) return CUDA_SUCCESS;
  Work* const wait = place.shared != nullptr
                         ? static_cast<Work*>(new SharedEventWait(place.shared, place.shared_number))
                         : new WaitWork(place.stream, place.number);
  stream->context()->Enqueue(*stream, wait);
  return CUDA_SUCCESS;
}

CUresult Elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  Event* start = nullptr;
  Event* end = nullptr;
  if (CUresult result = EnterEvent(start_handle, &start); result != CUDA_SUCCESS) return result;
  if (CUresult result = EnterEvent(end_handle, &end); result != CUDA_SUCCESS) return result;
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Place from = PlaceOf(*start);
  const Place to = PlaceOf(*end);
  if (from.captured.capture != 0 || to.captured.capture != 0) return CUDA_ERROR_CAPTURED_EVENT;
  if (from.stream == nullptr || to.stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (((from.flags | to.flags) & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
  if (!from.reached() || !to.reached()) return CUDA_ERROR_NOT_READY;
  // Read again: the time is written before the place is reached.
  *milliseconds =
      static_cast<float>(static_cast<double>(PlaceOf(*end).time_ns - PlaceOf(*start).time_ns) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace

void EndEventsOf(const Context& context) {
  EventPool& pool = GetPool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  for (Event* event : pool.all) {
    {
      std::lock_guard<std::mutex> own(event->mutex);
      if (event->context != &context) continue;
    }
    if (EndEvent(event)) pool.unused.push_back(event);
  }
}

}  // namespace simcuda

using simcuda::Event;

SIMCUDA_API CUresult cuEventCreate(CUevent* handle, unsigned int flags) {
  SIMCUDA_FAIL_POINT(cuEventCreate);
  simcuda::Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  constexpr unsigned int kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (handle == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<simcuda::SharedEvent> shared;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    if ((flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    shared = simcuda::SharedEvent::Create();
    if (shared == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = simcuda::MakeEvent(flags, context, std::move(shared));
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event_handle) {
  Event* event = nullptr;
  if (CUresult result = simcuda::EnterEvent(event_handle, &event); result != CUDA_SUCCESS) return result;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const simcuda::Place place = simcuda::PlaceOf(*event);
  if (place.shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  place.shared->MakeHandle(handle);
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  simcuda::Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<simcuda::SharedEvent> shared = simcuda::SharedEvent::Open(handle);
  if (shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *event = simcuda::MakeEvent(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, context, std::move(shared));
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuEventDestroy_v2(CUevent handle) {
  SIMCUDA_FAIL_POINT(cuEventDestroy_v2);
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  Event* event = simcuda::EventFromHandle(handle);
  if (event == nullptr || !simcuda::EndEvent(event))
    return simcuda::BadHandle(handle, "a CUevent", CUDA_ERROR_INVALID_HANDLE);
  {
    std::lock_guard<std::mutex> lock(simcuda::GetPool().mutex);
    simcuda::GetPool().unused.push_back(event);
  }
  // The event is gone; like every call this one reports a context that has failed.
  const simcuda::Context* context = simcuda::CurrentContext();
  return context == nullptr ? CUDA_SUCCESS : context->status();
}

SIMCUDA_API CUresult cuEventDestroy(CUevent handle) { return cuEventDestroy_v2(handle); }

SIMCUDA_API CUresult cuEventQuery(CUevent handle) {
  SIMCUDA_FAIL_POINT(cuEventQuery);
  Event* event = nullptr;
  if (CUresult result = simcuda::EnterEvent(handle, &event); result != CUDA_SUCCESS) return result;
  simcuda::CallTime time(simcuda::Call::kEventQuery);
  time.Spend();
  const simcuda::Place place = simcuda::PlaceOf(*event);
  if (CUresult result = simcuda::CheckEventUse(place.captured); result != CUDA_SUCCESS) return result;
  if (!place.reached()) return CUDA_ERROR_NOT_READY;
  return place.stream == nullptr ? CUDA_SUCCESS : place.stream->context()->status();
}

SIMCUDA_API CUresult cuEventSynchronize(CUevent handle) {
  SIMCUDA_FAIL_POINT(cuEventSynchronize);
  Event* event = nullptr;
  if (CUresult result = simcuda::EnterEvent(handle, &event); result != CUDA_SUCCESS) return result;
  const simcuda::Place place = simcuda::PlaceOf(*event);
  if (CUresult result = simcuda::CheckEventUse(place.captured); result != CUDA_SUCCESS) return result;
  if (place.shared != nullptr) {
    place.shared->WaitFor(place.shared_number);
    return CUDA_SUCCESS;
  }
  if (place.stream == nullptr) return CUDA_SUCCESS;
  place.stream->WaitFor(place.number);
  return place.stream->context()->status();
}

SIMCUDA_API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  SIMCUDA_FAIL_POINT(cuEventElapsedTime);
  return simcuda::Elapsed(milliseconds, start, end);
}
SIMCUDA_API CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return simcuda::Elapsed(milliseconds, start, end);
}

SIMCUDA_BOTH_FORMS(cuEventRecord, _ptsz, simcuda::Record, (CUevent e, CUstream s), (e, s))
SIMCUDA_BOTH_FORMS(cuEventRecordWithFlags, _ptsz, simcuda::RecordWithFlags,
                   (CUevent e, CUstream s, unsigned int flags), (e, s, flags))
SIMCUDA_BOTH_FORMS(cuStreamWaitEvent, _ptsz, simcuda::WaitEvent, (CUstream s, CUevent e, unsigned int flags),
                   (s, e, flags))
