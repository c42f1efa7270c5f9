// TransferQueue: the thread of one directory. It cuts transfers into requests, keeps a bounded number of them
// in flight on the directory's engine, and judges every result. It continues a short transfer, and tries a
// failed request again: a write for some seconds, a read until it succeeds, since its bytes may have no other
// copy. Reads wait for a silent drive; its writes are given up after a time. The queue owns the engine;
// checksums, slots and files are the store's. Any thread pushes transfers. A transfer's error comes with its
// `done`, on the queue's thread.

#ifndef SPILLWAY_IO_STORE_TRANSFER_QUEUE_H_
#define SPILLWAY_IO_STORE_TRANSFER_QUEUE_H_

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/engine/engine.h"
#include "io/os/atomic.h"
#include "io/os/clock.h"
#include "io/os/sync.h"
#include "io/os/thread.h"
#include "io/os/wait.h"
#include "io/store/speed_meter.h"
#include "io/store/transfer_order.h"
#include "io/store/write_budget.h"

namespace spillway::io {

struct TransferQueueOptions {
  std::string path;   // of the directory, for messages
  std::string drive;  // "nvme0n1p2"; for messages
  uint32_t request_bytes = 512u << 10;
  // The per-request timeout. A request without an answer for this long is late: the drive counts as silent,
  // and a write is given up. It is also the retry window for interrupted writes.
  std::chrono::nanoseconds request_timeout = std::chrono::seconds(30);
  // The retry window of a failed write, from its first error on, and of a read whose error means that the
  // bytes are not there.
  std::chrono::nanoseconds retry_time = std::chrono::seconds(2);
  WriteBudget* write_budget = nullptr;  // writes wait for it and are noted in it; null: no bound
  // Called with true when a request has become late, and with false when none is late any more, on the
  // queue's thread. Must not block.
  std::function<void(bool)> silence_changed;
  const os::Clock* clock = os::Clock::System();
  os::WaitList* waits = nullptr;  // null: long requests are not entered
};

// Counters since the start. Any thread may read while the queue's thread counts.
struct TransferCounters {
  os::Atomic<uint64_t> bytes_written{0};
  os::Atomic<uint64_t> bytes_read{0};
  os::Atomic<uint64_t> retries{0};
  os::Atomic<uint64_t> errors{0};  // transfers that failed, except canceled ones and at the end
};

class TransferQueue : public std::enable_shared_from_this<TransferQueue> {
 public:
  // Starts the thread. Fails with kResourceExhausted when the system has none left.
  static absl::StatusOr<std::shared_ptr<TransferQueue>> Start(std::unique_ptr<IoEngine> engine,
                                                              const TransferQueueOptions& options);

  // Takes the transfer, whose `done` is then called exactly once on the queue's thread. Returns false after
  // BeginStop; `done` is not called then. Any thread.
  [[nodiscard]] bool Push(std::shared_ptr<Transfer> transfer);

  void Promote(uint32_t slot);         // any thread; see SpillStore
  void CancelPrefetch(uint32_t slot);  // any thread; see SpillStore

  // The two calls that end the queue, so that several queues end at the same time. Each is called once.
  // Waiting transfers get Cancelled. Transfers under way are waited for until `timeout` and then get
  // DeadlineExceeded. Any thread but the queue's.
  void BeginStop(std::chrono::nanoseconds timeout);
  // Joins the thread. Returns false when the thread is stuck in the kernel after `timeout`, or will be when
  // it ends. The queue and everything that its callbacks use must then stay in memory.
  bool FinishStop(std::chrono::nanoseconds timeout);

  const TransferCounters& counters() const { return counters_; }
  const char* engine_name() const { return engine_->name(); }
  // The subject of a wait for this directory: "/scratch (nvme0n1p2)".
  std::string place() const {
    return options_.path + (options_.drive.empty() ? "" : " (" + options_.drive + ")");
  }
  // Bytes that were pushed and are not done, in this direction. Any thread.
  uint64_t queued_bytes(IoOp op) const { return queued_bytes_[static_cast<size_t>(op)].load(); }
  // Speed of this direction while it has requests, or the guess until then; 0 when neither is known. Any
  // thread.
  double BytesPerSecond(IoOp op) const {
    return speeds_[static_cast<size_t>(op)].BytesPerSecond(options_.clock->NowNanos());
  }
  void GuessSpeed(IoOp op, double bytes_per_second) {
    speeds_[static_cast<size_t>(op)].Guess(bytes_per_second);
  }
  void AbandonAfterFork() { engine_->AbandonAfterFork(); }

 private:
  enum class EndReason : uint8_t { kCancelled, kSilent };

  struct Flight {                        // one request; its place in flights_ is the low part of the tag
    std::shared_ptr<Transfer> transfer;  // null: the place is free
    uint32_t start = 0;                  // bytes from the start of the transfer
    uint32_t length = 0;                 // bytes
    uint32_t moved = 0;                  // of length, so far
    int interrupted = 0;                 // results EINTR and EAGAIN so far
    int failed = 0;                      // other errors so far
    int64_t failing_since = 0;           // clock, ns: time of the first of these
    bool late = false;                   // its result has not come in time
    // For a late write: the transfer has ended, but its place stays taken until the result comes. The
    // transfer is kept here for that.
    std::shared_ptr<Transfer> given_up;
    bool waiting_to_retry = false;
    int64_t retry_at = 0;  // clock, ns
    int64_t deadline = 0;  // clock, ns: for the attempt in flight
    int64_t started = 0;   // clock, ns: beginning of the first attempt
    uint64_t tag = 0;
  };

  TransferQueue(std::unique_ptr<IoEngine> engine, const TransferQueueOptions& options);

  void Run();
  std::array<TransferOrder::Load, 2> LoadOfDirections() const;
  bool WritesWaitForBudget();
  void FillBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FillFromRetries();
  void StartFlight(size_t place, std::shared_ptr<Transfer> transfer);
  void AddToBatch(Flight* flight);
  std::chrono::nanoseconds PollTimeout() const;
  void Judge(const IoResult& result);
  void RetryOrFail(Flight* flight, int error);
  bool MayTryAgain(const Flight& flight, int error, int64_t now) const;
  void Fail(Flight* flight, const absl::Status& status);
  void EndFlight(Flight* flight);
  void CompleteIfEnded(const std::shared_ptr<Transfer>& transfer);
  static void CallAnswered(Transfer* transfer);
  void GiveUp(Flight* flight);
  void RecordLateFlights();
  void RecordAnswer(Flight* flight);
  void RecordSilence();
  void AllowForStop(std::chrono::nanoseconds asked);
  void EndWaiting();
  void EndTransfers(const std::deque<std::shared_ptr<Transfer>>& transfers, EndReason reason);
  bool EndAll();  // true when the kernel has no request left
  void RecordWaits(int64_t now);
  std::string Describe(const Transfer& transfer) const;

  const TransferQueueOptions options_;
  const std::unique_ptr<IoEngine> engine_;  // Submit and Poll on the queue's thread only

  // Internally synchronized.
  TransferCounters counters_;
  // By IoOp, read for striping only. Push adds, CompleteIfEnded subtracts.
  std::array<os::Atomic<uint64_t>, 2> queued_bytes_{};
  std::array<SpeedMeter, 2> speeds_;  // by IoOp; the queue's thread begins and ends

  // Used by the queue's thread alone.
  std::vector<Flight> flights_;
  std::vector<IoRequest> batch_;
  size_t busy_places_ = 0;          // flights_ with a transfer or given up
  size_t given_up_places_ = 0;      // of these, given up
  int64_t failed_at_ = 0;           // clock, ns: last error of a request that is tried again; 0: none
  uint64_t next_sequence_ = 0;      // high part of the tags: distinguishes results of earlier uses of a place
  std::unique_ptr<os::Wait> wait_;  // for the oldest request, when it takes long
  bool silent_ = false;             // a request is late
  bool ending_ = false;             // in EndAll
  int64_t write_at_ = 0;            // clock, ns: when a write that waits for the budget may begin; 0: none
  int64_t looked_at_ = 0;           // clock, ns: when the thread last had the results of a Poll

  os::Mutex mu_{
      os::LockRank::kTransferQueue};  // kept across engine_->Wake, so that the engine is still there
  os::CondVar ended_cv_;
  TransferOrder order_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<Transfer>> cancelled_ ABSL_GUARDED_BY(mu_);  // the thread is to complete these
  bool polling_ ABSL_GUARDED_BY(mu_) = false;  // the thread waits in the engine, or is about to
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int64_t stop_deadline_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;  // with ended_: the kernel has no request left

  os::Thread thread_;  // started by Start, joined by FinishStop
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_TRANSFER_QUEUE_H_
