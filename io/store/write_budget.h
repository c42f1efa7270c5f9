// WriteBudget: bounds the bytes that the jobs of one user write to spill files on a machine, because writes
// wear a drive out. It is a token bucket: a number of bytes may be written at once, and written bytes come
// free again over the interval, evenly. When all of it is used, TransferQueue makes a write wait until some
// is free, SharedCapacity promises no more than it has before, plans count on the rate at which bytes come
// free, and the engine has this recorded and reported.
//
// The record is a file, so that the budget lasts over runs and covers the ranks of a job. It contains the
// number of bytes in use and the time of that number, in values that do not depend on a process's own budget.
// Each process adds its own bytes under a lock. Any thread may call CountWritten and the const methods; one
// thread at a time calls Record.

#ifndef SPILLWAY_IO_STORE_WRITE_BUDGET_H_
#define SPILLWAY_IO_STORE_WRITE_BUDGET_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "io/os/atomic.h"
#include "io/os/clock.h"
#include "io/os/sync.h"

namespace spillway::io {

class WriteBudget {
 public:
  struct Options {
    uint64_t bytes = 0;                   // that may be written in an interval
    std::chrono::nanoseconds interval{};  // above 0
    std::string path{};                   // of the record; empty: none, and the process counts alone
    std::function<int64_t()> unix_nanos = os::UnixNanos;
  };
  // Does not read the record yet.
  explicit WriteBudget(Options options);

  // Counts `bytes` that are being written. Takes no lock.
  void CountWritten(uint64_t bytes) { unrecorded_.fetch_add(bytes, std::memory_order_relaxed); }
  // Time for which the next write must wait if nothing else is written; zero while anything is left.
  std::chrono::nanoseconds UntilNextWrite() const;

  // Whether the budget is used up, for promises and plans. It stays so until a sixteenth is free again,
  // because bytes that come free meanwhile are for the writes that wait.
  bool spent() const;
  // Bytes that may still be written now.
  uint64_t left_bytes() const;
  uint64_t bytes() const { return options_.bytes; }
  double bytes_per_second() const;  // rate at which bytes come free
  // Time until it is no longer spent, if nothing is written; zero when it is not spent.
  std::chrono::nanoseconds UntilFree() const;

  // Adds to the record the bytes that were counted since the last time, and learns from it what others have
  // written. May wait for a disk, and up to 0.1 s for another process. After an error, which names the file
  // and the reason, the counted bytes stay with this process, and are added to the record when it is
  // available. A damaged record is begun anew, which is an error, too.
  absl::Status Record();

 private:
  // Bytes in use at a time (Unix, ns).
  struct State {
    uint64_t used_bytes = 0;
    int64_t at = 0;
  };
  uint64_t StillUsed(const State& state, int64_t now) const;
  uint64_t UsedLocked(int64_t now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::chrono::nanoseconds Until(uint64_t used_bytes, uint64_t most_bytes) const;
  absl::Status ExchangeRecord(uint64_t unrecorded, int64_t now, State* state) const;

  const Options options_;
  os::Atomic<uint64_t> unrecorded_{0};  // since the last Record
  mutable os::Mutex mu_{os::LockRank::kWriteBudget};
  State state_ ABSL_GUARDED_BY(mu_);                    // without the bytes of unrecorded_
  uint64_t unrecorded_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // part of state_ that the record lacks
  mutable bool spent_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_WRITE_BUDGET_H_
