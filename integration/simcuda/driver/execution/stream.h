// A stream: a queue of work and one thread that does it in order. The thread starts with the first work,
// sleeps while there is none, and ends when the stream is destroyed and drained. Order between streams is
// made of waits: work of one stream that waits until another has completed a number. Streams are never freed
// but used again, so a number of an old stream stays valid: numbers only grow. Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_STREAM_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_STREAM_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/machine/handles.h"

namespace simcuda {

class Context;
class Stream;

// One operation on a stream. Created by the caller's thread, run and deleted by the stream's.
class Work {
 public:
  virtual ~Work() = default;
  // `skip`: the context has failed; the work does nothing except let waiters go on.
  virtual void Run(Stream& stream, bool skip) = 0;
  // Returns whether it will read or write a byte of [start, start + size). Called under the stream's lock.
  virtual bool Touches(uint64_t start, uint64_t size) const { return false; }
  // Returns the name for messages; safe to call from a signal handler while the work runs.
  virtual const char* name() const = 0;
  // Returns whether random delays and holds apply.
  virtual bool is_operation() const { return true; }

 private:
  friend class Stream;
  Work* next_ = nullptr;
  uint64_t number_ = 0;
  int64_t queued_ns_ = 0;  // with a hardware profile
};

enum class StreamKind { kBlocking, kNonBlocking, kLegacy, kPerThread };

class Stream : public HandleObject {
 public:
  // Returns a stream of `context`, new or used before. While `error` is not success, its work is skipped.
  static Stream* Open(Context* context, const std::atomic<CUresult>* error, StreamKind kind, int priority);
  // Returns the stream of a handle, or null if the handle is none of a live stream.
  static Stream* FromHandle(const void* handle) { return LiveObject<Stream>(handle, HandleKind::kStream); }

  Context* context() const { return context_; }
  StreamKind kind() const { return kind_; }
  int priority() const { return priority_; }
  uint64_t id() const { return id_; }

  // Takes ownership of `work`; returns its number.
  uint64_t Enqueue(Work* work);
  uint64_t enqueued() const { return enqueued_.load(); }
  uint64_t completed() const { return completed_.load(); }
  bool IsDone(uint64_t number) const { return completed() >= number; }
  void WaitFor(uint64_t number);
  // Waits as a driver does for a caller whose work has got far ahead of the device. Not on a stream's thread,
  // nor while streams are held.
  void WaitForQueueSpace(uint64_t number);

  // Ends the queue: queued work is done, then the stream is free for Open.
  void Close();

  // Returns the name of an operation, running or queued, that touches the range; "" if there is none.
  std::string FindTouching(uint64_t start, uint64_t size);

  // Copies the name of the work that runs now, for a signal handler. Returns false if there is none or it
  // cannot be read.
  bool CopyRunningName(char* name, size_t bytes);
  // Times of the running work with a hardware profile: when its turn came, however late the thread woke, and,
  // set by the work, when it ended (if not set: now).
  int64_t begin_ns() const { return begin_ns_; }
  void set_end_ns(int64_t end_ns) { end_ns_ = end_ns; }
  int64_t end_ns() const { return end_ns_; }
  // Returns when work that is done ended; 0 for long ago, which is before the last kEndsKept works.
  // Thread-safe.
  int64_t EndOf(uint64_t number) const;

  // Returns whether the running work is an operation (not a wait), also for a signal handler.
  bool RunsOperation();

  // The number of the last legacy work that this stream was made to wait for (and on the legacy stream:
  // unused).
  std::atomic<uint64_t> legacy_seen{0};

 private:
  Stream() = default;
  void ThreadMain();
  void Execute(Work* work);
  void StartLocked();

  // Set by Open, constant until Close. Atomic because a stale handle may be looked at while a stream is used
  // again.
  std::atomic<Context*> context_{nullptr};
  std::atomic<const std::atomic<CUresult>*> error_{nullptr};
  std::atomic<StreamKind> kind_{StreamKind::kBlocking};
  std::atomic<int> priority_{0};
  std::atomic<uint64_t> id_{0};
  uint64_t random_ = 0;                // state of the delays' generator; the stream's thread only
  int64_t begin_ns_ = 0, end_ns_ = 0;  // the stream's thread only
  int64_t last_end_ns_ = 0;            // the stream's thread only
  static constexpr uint64_t kEndsKept = 512;
  std::atomic<int64_t> ends_ns_[kEndsKept] = {};  // of the last works, by number; written before completed_

  std::atomic<uint64_t> enqueued_{0};   // written under mutex_
  std::atomic<uint64_t> completed_{0};  // written under mutex_; any thread may read it
  std::atomic<Work*> running_{nullptr};

  std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  std::condition_variable done_;
  Work* head_ = nullptr;
  Work* tail_ = nullptr;
  bool asleep_ = false;
  bool started_ = false;
  bool closing_ = false;
  uint64_t wanted_ = UINT64_MAX;  // the least number that a thread waits for
};

// Returns the stream whose thread this is, or null.
Stream* CurrentStreamOfThread();

// Calls visit(stream) for each stream that was ever opened.
template <typename Visit>
void ForEachStream(Visit visit);
int StreamCount();
Stream* StreamAt(int index);

template <typename Visit>
void ForEachStream(Visit visit) {
  for (int i = 0, count = StreamCount(); i < count; ++i) visit(*StreamAt(i));
}

// Holds every stream before its next operation, or lets them go (simcuda_hold_streams).
void HoldStreams(bool hold);

// Waits until `stream` has completed `number`.
class WaitWork : public Work {
 public:
  WaitWork(Stream* stream, uint64_t number) : stream_(stream), number_(number) {}
  void Run(Stream& stream, bool skip) override;
  const char* name() const override { return "wait for another stream"; }
  bool is_operation() const override { return false; }

 private:
  Stream* const stream_;
  const uint64_t number_;
};

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_STREAM_H_
