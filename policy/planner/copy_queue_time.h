// CopyQueueTime: the free time of one copy queue over an iteration that repeats, kernel by kernel. Choices
// take the earliest or the latest free time of a stretch of kernels, which may go over the iteration's end.
// Used while a plan is made; one thread; nothing fails.
//
// A queue can copy during a kernel for as long as the kernel lasts, so the free time begins as the kernels'
// durations. Sums over stretches come from a binary indexed tree. Kernels whose time is used up are skipped
// by chains, one forward and one backward, which are shortened as they are walked, as in a union-find.

#ifndef SPILLWAY_POLICY_PLANNER_COPY_QUEUE_TIME_H_
#define SPILLWAY_POLICY_PLANNER_COPY_QUEUE_TIME_H_

#include <cstdint>
#include <vector>

#include "policy/model/units.h"

namespace spillway::policy {

// The time of a copy of `bytes` at `rate` bytes per second.
inline Nanos TimeFor(Bytes bytes, double rate) {
  return static_cast<Nanos>(static_cast<double>(bytes) / rate * kNanosPerSecond);
}

class CopyQueueTime {
 public:
  // `durations`: of each kernel, all of it free.
  explicit CopyQueueTime(const std::vector<Nanos>& durations);

  // Positions are any integers, taken modulo the number of kernels; a stretch [begin, end) longer than an
  // iteration counts as its last iteration. Logarithmic time each (Take: per kernel whose time is used up).
  Nanos Free(int64_t begin, int64_t end) const;
  // Takes `time` from the earliest free time of the stretch, as far as it has that much. Returns the position
  // of the last kernel whose time was taken (begin - 1 when none was).
  int64_t TakeEarliest(int64_t begin, int64_t end, Nanos time);
  // Takes the latest free time instead. Returns the position of the first kernel whose time was taken (end
  // when none was).
  int64_t TakeLatest(int64_t begin, int64_t end, Nanos time);

 private:
  int64_t Wrap(int64_t position) const;
  Nanos Prefix(int64_t count) const;  // free time of kernels 0 .. count-1
  void Use(int64_t kernel, Nanos time);
  // The first kernel at or after `kernel` (the last at or before it) with free time; size or -1 when none.
  int64_t NextFree(int64_t kernel);
  int64_t PreviousFree(int64_t kernel);

  const int64_t size_;
  std::vector<Nanos> free_;
  std::vector<Nanos> sums_;  // a binary indexed tree over free_
  // Chains over used-up kernels, shortened as they are walked.
  std::vector<int64_t> next_;      // of kernel k at k; size_ ends it
  std::vector<int64_t> previous_;  // of kernel k at k + 1; 0 ends it
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_COPY_QUEUE_TIME_H_
