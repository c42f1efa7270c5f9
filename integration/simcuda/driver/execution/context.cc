#include "integration/simcuda/driver/execution/context.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

std::atomic<uint64_t> next_context_id{1};
std::atomic<void (*)(Stream&)> g_before_close{nullptr};

// The state of one thread.
struct ThreadState {
  std::vector<Context*> stack;
  struct Own {
    Context* context;
    Stream* stream;
    uint64_t id;  // streams are used again: another id is another stream
    bool valid() const { return Stream::FromHandle(stream) == stream && stream->id() == id; }
  };
  std::vector<Own> own_streams;  // one per context that it used
};

// A plain pointer: calls are legal after the thread's destructors have run (atexit handlers, other libraries'
// thread-locals), when an object of ours would be gone.
thread_local ThreadState* t_state = nullptr;

// At a thread's end its default streams are closed. The main thread keeps its state: exit handlers still
// call.
struct ThreadStateReaper {
  ~ThreadStateReaper() {
    if (t_state == nullptr || syscall(SYS_gettid) == getpid()) return;
    if (IsAlive()) {
      for (const auto& own : t_state->own_streams) {
        if (own.valid()) own.context->CloseStream(own.stream);
      }
    }
    delete t_state;
    t_state = nullptr;
  }
};

ThreadState& OfThisThread() {
  if (t_state == nullptr) {
    thread_local ThreadStateReaper reaper;
    t_state = new ThreadState;
    asm volatile("" : : "r"(&reaper));  // named, so that the thread registers its destructor
  }
  return *t_state;
}

bool IsBlocking(StreamKind kind) { return kind == StreamKind::kBlocking || kind == StreamKind::kPerThread; }

}  // namespace

Context::Context(Device* device, bool primary) : device_(device), primary_(primary), id_(next_context_id++) {
  limits[CU_LIMIT_STACK_SIZE] = 1024;
  limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
  limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
  legacy_ = Stream::Open(this, &error_, StreamKind::kLegacy, 0);
  Live(HandleKind::kContext);
}

Stream& Context::per_thread() {
  for (const auto& own : OfThisThread().own_streams) {
    if (own.context == this && own.valid()) return *own.stream;
  }
  Stream* stream = OpenStream(StreamKind::kPerThread, 0);
  OfThisThread().own_streams.push_back({this, stream, stream->id()});
  return *stream;
}

Stream* Context::OpenStream(StreamKind kind, int priority) {
  Stream* stream = Stream::Open(this, &error_, kind, priority);
  if (stream == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  streams_.push_back(stream);
  if (IsBlocking(kind)) ++blocking_count_;
  return stream;
}

void Context::BeforeClose(void (*see)(Stream&)) { g_before_close = see; }

void Context::CloseStream(Stream* stream) {
  if (const auto see = g_before_close.load()) see(*stream);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = std::find(streams_.begin(), streams_.end(), stream);
    if (it == streams_.end()) return;
    streams_.erase(it);
    if (IsBlocking(stream->kind())) --blocking_count_;
  }
  const uint64_t number = stream->enqueued();
  if (!stream->IsDone(number)) {
    // Work of the legacy stream that comes later must still follow what is queued here.
    if (IsBlocking(stream->kind())) legacy_->Enqueue(new WaitWork(stream, number));
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(drains_, [](const Drain& drain) { return drain.stream->IsDone(drain.number); });
    drains_.push_back({stream, number});
  }
  stream->Close();
}

std::vector<Stream*> Context::Streams() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Stream*> all = streams_;
  all.push_back(legacy_);
  return all;
}

uint64_t Context::Enqueue(Stream& stream, Work* work) {
  // Numbers to wait for are read before our own work is published, so waits never form a circle.
  if (stream.kind() == StreamKind::kLegacy) {
    if (blocking_count_.load() != 0) {
      std::lock_guard<std::mutex> lock(mutex_);
      for (Stream* other : streams_) {
        const uint64_t number = other->enqueued();
        if (IsBlocking(other->kind()) && !other->IsDone(number)) stream.Enqueue(new WaitWork(other, number));
      }
    }
  } else if (IsBlocking(stream.kind())) {
    const uint64_t number = legacy_->enqueued();
    if (number != stream.legacy_seen.load() && !legacy_->IsDone(number)) {
      stream.Enqueue(new WaitWork(legacy_, number));
      stream.legacy_seen = number;
    }
  }
  const uint64_t number = stream.Enqueue(work);
  stream.WaitForQueueSpace(number);
  return number;
}

void Context::Synchronize() {
  std::vector<Drain> drains;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    drains = drains_;
  }
  for (const Drain& drain : drains) drain.stream->WaitFor(drain.number);
  for (Stream* stream : Streams()) stream->WaitFor(stream->enqueued());
}

void Context::SynchronizeLegacy() {
  for (Stream* stream : Streams()) {
    if (stream->kind() != StreamKind::kNonBlocking) stream->WaitFor(stream->enqueued());
  }
}

bool Context::IsLegacyIdle() {
  for (Stream* stream : Streams()) {
    if (stream->kind() != StreamKind::kNonBlocking && !stream->IsDone(stream->enqueued())) return false;
  }
  return true;
}

void Context::Fail(CUresult error, const std::string& text) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failed()) return;
    error_text_ = text;
    error_ = error;
  }
  std::fprintf(stderr, "simcuda: device %d failed: %s\n", device_->ordinal(), text.c_str());
}

std::string Context::error_text() {
  std::lock_guard<std::mutex> lock(mutex_);
  return error_text_;
}

bool Context::SetPeer(Context* peer, bool enabled) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool was = std::erase(peers_, peer) != 0;
  if (enabled) peers_.push_back(peer);
  return was != enabled;
}

void Context::Reset() {
  Synchronize();
  for (Stream* stream : Streams()) {
    if (stream != legacy_) CloseStream(stream);
  }
  GetAddressSpace().FreeAllOf(this);
  std::lock_guard<std::mutex> lock(mutex_);
  error_text_.clear();
  peers_.clear();
  error_ = CUDA_SUCCESS;
}

void Context::Destroy() {
  Reset();
  Die();
  legacy_->Close();
}

std::vector<Context*>& ContextStack() { return OfThisThread().stack; }

Context* CurrentContext() {
  return t_state == nullptr || t_state->stack.empty() ? nullptr : t_state->stack.back();
}

CUresult EnterContext(Context** context) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  *context = CurrentContext();
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!(*context)->IsLive(HandleKind::kContext)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return (*context)->status();
}

CUresult EnterAny() {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (const Context* context = CurrentContext(); context != nullptr) return context->status();
  for (int i = 0; i < DeviceCount(); ++i) {
    if (CUresult result = PrimaryStatus(*FindDevice(i)); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult EnterStream(CUstream handle, Form form, Stream** stream) {
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (handle == CU_STREAM_LEGACY || (handle == nullptr && form == Form::kLegacy)) {
    *stream = &context->legacy();
    return CUDA_SUCCESS;
  }
  if (handle == CU_STREAM_PER_THREAD || handle == nullptr) {
    *stream = &context->per_thread();
    return CUDA_SUCCESS;
  }
  *stream = Stream::FromHandle(handle);
  if (*stream == nullptr) return BadHandle(handle, "a CUstream", CUDA_ERROR_INVALID_HANDLE);
  return (*stream)->context()->status();
}

}  // namespace simcuda
