// WriteBudget: bounds what the jobs of one user write to spill files on a machine, since a drive is worn out
// by what is written to it. A bucket: so many bytes may be written at once, and what was written comes free
// again over the interval, evenly. Once all is used, TransferQueue lets a write wait until some is free,
// SharedCapacity promises no more than it has before, plans count on the rate at which it comes free, and the
// engine has it recorded and reported.
//
// The record is a file, so that the budget holds over runs and over the ranks of a job. It says how many
// bytes are in use and since when, in numbers that do not depend on a process's own budget. Each process adds
// its own under a lock. Note and the looks may come from any thread, Record from one at a time.

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
    uint64_t bytes = 0;                   // that may be written in a interval
    std::chrono::nanoseconds interval{};  // above 0
    std::string path{};                   // of the record; empty: there is none, and the process counts alone
    std::function<int64_t()> unix_nanos = os::UnixNanos;
  };
  // Reads no record yet.
  explicit WriteBudget(Options options);

  // So many bytes are being written. No lock.
  void Note(uint64_t bytes) { noted_.fetch_add(bytes, std::memory_order_relaxed); }
  // How long the next write is to wait, if nothing else is written; zero while anything is left.
  std::chrono::nanoseconds UntilNextWrite() const;

  // The budget is used up, for promises and plans. It stays so until a sixteenth is free again: what comes
  // free meanwhile is for what waits.
  bool spent() const;
  // Bytes that may still be written now.
  uint64_t left_bytes() const;
  uint64_t bytes() const { return options_.bytes; }
  double bytes_per_second() const;  // what comes free
  // How long until it is not spent, if nothing is written; zero when it is not.
  std::chrono::nanoseconds UntilFree() const;

  // Adds to the record what was noted since the last time, and learns from it what others have written. May
  // wait for a disk, and up to 0.1 s for another process. After an error, which names the file and the
  // reason, what was noted counts in this process, and is added to the record when that can be had. A damaged
  // record is begun anew, and that is an error, too.
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
  os::Atomic<uint64_t> noted_{0};  // since the last Record
  mutable os::Mutex mu_{os::LockRank::kWriteBudget};
  State state_ ABSL_GUARDED_BY(mu_);                    // without what is in noted_
  uint64_t unrecorded_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of state_: the record lacks them
  mutable bool spent_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_WRITE_BUDGET_H_
