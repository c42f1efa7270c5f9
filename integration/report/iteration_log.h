// IterationLog: when the iterations of a job began and how long they took, for the report. If the job's
// optimizers mark iterations, each lasts from mark to mark. Otherwise iterations are counted by the launches
// that samples show now and then, if the number of launches in an iteration is known. Marks come on any
// thread, samples on the reporter's. All memory is taken at the start; no call fails.

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

  // Ends an iteration and begins the next. Thread-safe.
  void Mark(double seconds);

  struct Sample {
    double seconds = 0;
    uint64_t launches = 0;            // so far
    uint64_t iteration_launches = 0;  // of the iteration that repeats now; 0 if none is known
    uint64_t departures = 0;          // grows whenever the job does something else
  };
  // Takes the counts of this moment. Should be called often: the end of an iteration is interpolated between
  // two samples in proportion to the launches.
  void Record(const Sample& sample);

  // Returns the last iterations, oldest first. Thread-safe.
  std::vector<LoggedIteration> Iterations() const;

 private:
  const size_t most_;
  mutable os::Mutex mu_{os::LockRank::kRecorder};
  LastEntries<LoggedIteration> iterations_ ABSL_GUARDED_BY(mu_);
  bool marked_ ABSL_GUARDED_BY(mu_) = false;
  double began_ ABSL_GUARDED_BY(mu_) = 0;  // start of the iteration in progress: the last mark

  // Used by the reporter's thread alone.
  Sample last_;
  uint64_t next_end_ = 0;      // launches at which the iteration in progress ends; 0: none is in progress
  double counted_began_ = -1;  // when it began; negative: not known
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_ITERATION_LOG_H_
