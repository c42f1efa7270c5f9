// IterationLog: when the iterations of a job began and how long they took, for the report. Where the job's
// optimisers mark iterations, from mark to mark; else from the launches that were counted at looks now and
// then, where the launches of an iteration are known. Marks come on any thread, looks on the reporter's. All
// memory is taken at the start; nothing fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_ITERATION_LOG_H_
#define SPILLWAY_INTEGRATION_REPORT_ITERATION_LOG_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "integration/report/last_entries.h"
#include "io/os/sync.h"

namespace spillway::integration {

enum class IterationKind : uint8_t { kMarked, kRepeated };

struct LoggedIteration {
  double start_seconds = 0;
  double seconds = 0;
  IterationKind kind = IterationKind::kMarked;
};

class IterationLog {
 public:
  explicit IterationLog(size_t most = 1024) : most_(most), iterations_(most) {}

  // An iteration ends, and the next begins. Any thread.
  void Mark(double seconds);

  struct Look {
    double seconds = 0;
    uint64_t launches = 0;            // so far
    uint64_t iteration_launches = 0;  // of the iteration that repeats now; 0: none is known
    uint64_t departures = 0;          // grows whenever the job does something else
  };
  // What is counted now. To be called often: an iteration's end is taken to lie between two looks in
  // proportion to the launches.
  void Note(const Look& look);

  // The last ones, oldest first. Any thread.
  std::vector<LoggedIteration> Iterations() const;

 private:
  const size_t most_;
  mutable os::Mutex mu_{os::LockRank::kRecorder};
  LastEntries<LoggedIteration> iterations_ ABSL_GUARDED_BY(mu_);
  bool marked_ ABSL_GUARDED_BY(mu_) = false;
  double began_ ABSL_GUARDED_BY(mu_) = 0;  // the iteration under way: since the last mark

  // The reporter's thread alone.
  Look last_;
  uint64_t next_end_ = 0;      // launches at which the iteration under way ends; 0: none is under way
  double counted_began_ = -1;  // when it began; negative: not known
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_ITERATION_LOG_H_
