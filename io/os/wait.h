// WaitList: the waits that are under way, each with its kind, its subject and its beginning. A wait is
// entered wherever a thread of the job, or work for which such a thread waits, cannot go on until something
// else happens. A long wait is reported by a line of the log: after 10 s, after 60 s and then every 5
// minutes. Idle sleeps of our own threads are not entered. The engine makes one list for the process; its
// reporter calls Scan and reads the metrics. A wait fails only at the user's limit (SPILLWAY_WAIT_LIMIT), by
// Wait::Check.

#ifndef SPILLWAY_IO_OS_WAIT_H_
#define SPILLWAY_IO_OS_WAIT_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "io/os/clock.h"
#include "io/os/sync.h"

namespace spillway::os {

// Kinds of waits, by what is waited for.
enum class WaitKind : int {
  kChunks,         // a launch: device memory for what it names
  kArrival,        // a launch or a long-term pin: bytes on their way back to the device
  kRunAhead,       // a launch: the bound on uncompleted work
  kEndOfTransfer,  // an allocation: the transfer of the address's last block
  kCacheRelease,   // empty_cache, or a driver allocation of the job's own: chunks given back
  kPause,          // a pause: blocks that leave; a launch: the resume from outside
  kShare,          // a launch or an allocation: device memory that other jobs have
  kAudit,          // a launch in audit mode: the launch before it, transfers
  kDiskGrowth,     // an allocation: spill files that grow
  kPinning,        // an allocation: host memory that is being pinned
  kDrive,          // a transfer: the drive's answer
  kReadSections,   // the device's thread: launches that are being made; cannot be ended
  kDriverCall,     // one call of the driver that may take long; cannot be ended
  kCount,
};

struct WaitNames {
  const char* key;   // in the metrics file: "chunks"
  const char* text;  // in lines of the log: "device memory"
};
const WaitNames& NamesOf(WaitKind kind);

class WaitList {
 public:
  using LineSink = std::function<void(const std::string& line)>;

  // `limit` is the longest duration of a wait that can be ended; zero for no limit. `sink` gets whole lines
  // and must not wait; null stands for ReportLine.
  explicit WaitList(const Clock* clock = Clock::System(), LineSink sink = nullptr,
                    std::chrono::nanoseconds limit = std::chrono::nanoseconds::zero());
  ~WaitList();
  WaitList(const WaitList&) = delete;
  WaitList& operator=(const WaitList&) = delete;

  struct Entry {
    WaitKind kind = WaitKind::kChunks;
    std::string subject;  // what is waited for, or for what: "the read of /nvme0", "launch of gemm_kernel"
    int64_t since = 0;    // nanoseconds of the clock
    int thread = 0;       // kernel's number of the thread that entered it
    int lines = 0;        // reported so far
  };
  struct Totals {
    uint64_t ended = 0;  // waits that are over
    uint64_t nanos = 0;  // sum of their durations
    uint64_t now = 0;    // under way
    uint64_t longest_now_nanos = 0;
  };

  // Reports the waits whose lines are due. The reporter calls it about once a second. Any thread, without a
  // lock.
  void Scan();
  // The waits under way, the oldest first. Any thread.
  std::vector<Entry> UnderWay() const;
  // By WaitKind. Any thread.
  std::array<Totals, static_cast<size_t>(WaitKind::kCount)> Metrics() const;
  // One line: "waits 12 s for device memory (launch of gemm_kernel, thread 4711)". Empty when nothing has
  // waited for a second.
  std::string Describe() const;

 private:
  friend class Wait;
  using Entries = std::list<Entry>;
  Entries::iterator Enter(WaitKind kind, std::string subject);
  void Leave(Entries::iterator entry);
  std::string LineOf(const Entry& entry, int64_t now) const;

  const Clock* const clock_;
  const LineSink sink_;
  const int64_t limit_nanos_;
  mutable Mutex mu_{LockRank::kWaits};
  Entries entries_ ABSL_GUARDED_BY(mu_);  // in order of `since`
  std::array<Totals, static_cast<size_t>(WaitKind::kCount)> totals_ ABSL_GUARDED_BY(mu_) = {};
};

// One wait: entered by its constructor, left by its destructor. Belongs to one thread; may be made with any
// lock.
class Wait {
 public:
  Wait(WaitList* list, WaitKind kind, std::string subject)
      : list_(list), entry_(list->Enter(kind, std::move(subject))), since_(entry_->since) {}
  ~Wait() { list_->Leave(entry_); }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  // Replaces the subject.
  void SetSubject(std::string subject);
  int64_t since() const { return since_; }
  // Time until the user's limit; the longest duration when there is no limit.
  std::chrono::nanoseconds Left() const;
  // OK, or kDeadlineExceeded with the line of the wait when it has passed the user's limit; the caller then
  // gives up.
  absl::Status Check() const;

 private:
  WaitList* const list_;
  const WaitList::Entries::iterator entry_;
  const int64_t since_;
};

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_WAIT_H_
