#include "integration/simcuda/driver/execution/stream.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <vector>

#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/machine/hardware_time.h"

namespace simcuda {
namespace {

// Work of one stream that may wait for the device; a driver's launch queue is of this size, too.
constexpr uint64_t kMaxQueued = 1024;

// One each millisecond.
constexpr int kMaxThreadTries = 10'000;

// All streams ever made. A fixed array, so that a signal handler may walk it without a lock.
constexpr int kMaxStreams = 1 << 16;
struct Registry {
  std::mutex mutex;
  std::vector<Stream*> unused;  // guarded by mutex
  uint64_t next_id = 1;         // guarded by mutex
  std::atomic<int> count{0};
  std::atomic<Stream*> streams[kMaxStreams] = {};
};
Registry& GetRegistry() {
  static Registry* registry = new Registry;  // never destroyed: threads outlive static destructors
  return *registry;
}

struct Hold {
  std::atomic<bool> on{false};
  std::mutex mutex;
  std::condition_variable released;
};
Hold& GetHold() {
  static Hold* hold = new Hold;
  return *hold;
}

thread_local Stream* t_stream = nullptr;

uint64_t NextRandom(uint64_t* state) {
  *state += 0x9e3779b97f4a7c15;  // splitmix64
  uint64_t z = *state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Signals of the process belong to its own threads; only faults are ours.
void BlockSignalsOfThread() {
  sigset_t all;
  sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

int StreamCount() { return GetRegistry().count.load(); }
Stream* StreamAt(int index) { return GetRegistry().streams[index].load(); }
Stream* CurrentStreamOfThread() { return t_stream; }

void HoldStreams(bool hold) {
  Hold& state = GetHold();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.on = hold;
  state.released.notify_all();
}

Stream* Stream::Open(Context* context, const std::atomic<CUresult>* error, StreamKind kind, int priority) {
  Registry& registry = GetRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  Stream* stream = nullptr;
  if (!registry.unused.empty()) {
    stream = registry.unused.back();
    registry.unused.pop_back();
  } else {
    const int index = registry.count.load();
    if (index == kMaxStreams) return nullptr;
    stream = new Stream;
    registry.streams[index] = stream;
    registry.count = index + 1;
  }
  stream->context_ = context;
  stream->error_ = error;
  stream->kind_ = kind;
  stream->priority_ = priority;
  stream->id_ = registry.next_id++;
  stream->random_ = static_cast<uint64_t>(GetSettings().seed.load()) * 0x100000001b3 + stream->id_;
  stream->legacy_seen = 0;
  stream->Live(HandleKind::kStream);
  return stream;
}

uint64_t Stream::Enqueue(Work* work) {
  bool wake = false;
  uint64_t number = 0;
  if (ActiveProfile() != nullptr) work->queued_ns_ = NowNs();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    number = enqueued_.load(std::memory_order_relaxed) + 1;
    work->number_ = number;
    (head_ == nullptr ? head_ : tail_->next_) = work;
    tail_ = work;
    enqueued_.store(number);
    if (!started_) StartLocked();
    wake = asleep_;
    asleep_ = false;  // one wake-up is enough
  }
  if (wake) wake_.notify_one();
  return number;
}

void Stream::WaitForQueueSpace(uint64_t number) {
  const bool far_ahead = number > completed() + kMaxQueued;
  if (far_ahead && t_stream == nullptr && !GetHold().on.load()) WaitFor(number - kMaxQueued);
}

void Stream::StartLocked() {
  started_ = true;
  // A GPU's queue needs no thread of the system, so one that is refused for the moment is asked for again: no
  // driver call answers with that.
  for (int left = kMaxThreadTries;; --left) {
    try {
      std::thread([this] { ThreadMain(); }).detach();
      return;
    } catch (const std::system_error& error) {
      if (left == 0) {
        std::fprintf(stderr, "simcuda: the system starts no thread for a stream: %s\n", error.what());
        std::abort();
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Stream::WaitFor(uint64_t number) {
  if (IsDone(number)) return;
  std::unique_lock<std::mutex> lock(mutex_);
  while (completed_.load(std::memory_order_relaxed) < number) {
    wanted_ = std::min(wanted_, number);
    done_.wait(lock);
  }
}

void Stream::Close() {
  Registry& registry = GetRegistry();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Die();
    if (started_) {
      closing_ = true;
      asleep_ = false;
      wake_.notify_one();
      return;
    }
  }
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.unused.push_back(this);
}

void Stream::ThreadMain() {
  BlockSignalsOfThread();
  prctl(PR_SET_TIMERSLACK, 1UL);
  char thread_name[16];
  std::snprintf(thread_name, sizeof(thread_name), "simcuda-%llu", static_cast<unsigned long long>(id()));
  pthread_setname_np(pthread_self(), thread_name);
  t_stream = this;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    while (head_ == nullptr && !closing_) {
      asleep_ = true;
      wake_.wait(lock);
    }
    asleep_ = false;
    if (head_ == nullptr) break;
    Work* work = head_;
    head_ = work->next_;
    running_ = work;
    lock.unlock();
    Execute(work);
    const uint64_t number = work->number_;
    lock.lock();
    running_ = nullptr;
    completed_.store(number);
    if (number >= wanted_) {
      wanted_ = UINT64_MAX;
      done_.notify_all();
    }
    lock.unlock();
    delete work;
    lock.lock();
  }
  started_ = false;
  closing_ = false;
  t_stream = nullptr;
  lock.unlock();
  std::lock_guard<std::mutex> registry_lock(GetRegistry().mutex);
  GetRegistry().unused.push_back(this);
}

void Stream::Execute(Work* work) {
  if (work->is_operation()) {
    Hold& hold = GetHold();
    if (hold.on.load(std::memory_order_relaxed)) {
      std::unique_lock<std::mutex> lock(hold.mutex);
      while (hold.on) hold.released.wait(lock);
    }
    const int64_t most = GetSettings().delay_max_ns.load(std::memory_order_relaxed);
    if (most > 0)
      SleepUntil(NowNs() + static_cast<int64_t>(NextRandom(&random_) % static_cast<uint64_t>(most)));
  }
  const bool timed = ActiveProfile() != nullptr;
  if (timed) begin_ns_ = std::max(last_end_ns_, work->queued_ns_);
  end_ns_ = 0;
  work->Run(*this, /*skip=*/error_.load()->load() != CUDA_SUCCESS);
  if (timed) last_end_ns_ = end_ns_ != 0 ? end_ns_ : NowNs();
  ends_ns_[work->number_ % kEndsKept] = timed ? last_end_ns_ : 0;
}

int64_t Stream::EndOf(uint64_t number) const {
  const int64_t end_ns = ends_ns_[number % kEndsKept].load();
  // The work that takes this place next is not begun before all that are in front of it are done.
  return IsDone(number + kEndsKept - 1) ? 0 : end_ns;
}

void WaitWork::Run(Stream& stream, bool skip) {
  stream_->WaitFor(number_);
  // However late this thread woke: the wait was over when that work ended.
  if (ActiveProfile() != nullptr) stream.set_end_ns(std::max(stream.begin_ns(), stream_->EndOf(number_)));
}

bool Stream::CopyRunningName(char* name, size_t bytes) {
  // The stream's own thread may read without the lock, and might be the one that holds it.
  const bool own = t_stream == this;
  if (!own && !mutex_.try_lock()) return false;
  const Work* work = running_.load();
  if (work != nullptr) std::snprintf(name, bytes, "%s", work->name());
  if (!own) mutex_.unlock();
  return work != nullptr;
}

bool Stream::RunsOperation() {
  const bool own = t_stream == this;
  if (!own && !mutex_.try_lock()) return false;
  const Work* work = running_.load();
  const bool runs = work != nullptr && work->is_operation();
  if (!own) mutex_.unlock();
  return runs;
}

std::string Stream::FindTouching(uint64_t start, uint64_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Work* running = running_.load();
  if (running != nullptr && running->Touches(start, size)) return std::string("running ") + running->name();
  for (const Work* work = head_; work != nullptr; work = work->next_) {
    if (work->Touches(start, size)) return std::string("queued ") + work->name();
  }
  return "";
}

}  // namespace simcuda
