#include "policy/planner/copy_queue_time.h"

#include <algorithm>
#include <numeric>

namespace spillway::policy {

CopyQueueTime::CopyQueueTime(const std::vector<Nanos>& durations)
    : size_(static_cast<int64_t>(durations.size())),
      free_(durations),
      sums_(durations.size() + 1, 0),
      next_(durations.size() + 1),
      previous_(durations.size() + 1) {
  for (int64_t k = 1; k <= size_; ++k) {
    sums_[k] += free_[k - 1];
    if (const int64_t parent = k + (k & -k); parent <= size_) sums_[parent] += sums_[k];
  }
  std::iota(next_.begin(), next_.end(), 0);
  std::iota(previous_.begin(), previous_.end(), 0);
}

int64_t CopyQueueTime::Wrap(int64_t position) const { return ((position % size_) + size_) % size_; }

Nanos CopyQueueTime::Prefix(int64_t count) const {
  Nanos total = 0;
  for (int64_t k = count; k > 0; k -= k & -k) total += sums_[k];
  return total;
}

Nanos CopyQueueTime::Free(int64_t begin, int64_t end) const {
  begin = std::max(begin, end - size_);
  if (begin >= end) return 0;
  const int64_t first = Wrap(begin);
  const int64_t last = first + (end - begin);
  if (last <= size_) return Prefix(last) - Prefix(first);
  return Prefix(size_) - Prefix(first) + Prefix(last - size_);
}

void CopyQueueTime::Use(int64_t kernel, Nanos time) {
  free_[kernel] -= time;
  for (int64_t k = kernel + 1; k <= size_; k += k & -k) sums_[k] -= time;
  if (free_[kernel] > 0) return;
  next_[kernel] = kernel + 1;
  previous_[kernel + 1] = kernel;
}

int64_t CopyQueueTime::NextFree(int64_t kernel) {
  while (kernel < size_ && free_[kernel] <= 0) {
    next_[kernel] = std::max(next_[kernel], kernel + 1);
    next_[kernel] = next_[next_[kernel]] == next_[kernel] ? next_[kernel] : next_[next_[kernel]];
    kernel = next_[kernel];
  }
  return kernel;
}

int64_t CopyQueueTime::PreviousFree(int64_t kernel) {
  int64_t place = kernel + 1;  // previous_ is indexed by kernel + 1
  while (place > 0 && free_[place - 1] <= 0) {
    previous_[place] = std::min(previous_[place], place - 1);
    previous_[place] = previous_[previous_[place]];
    place = previous_[place];
  }
  return place - 1;
}

int64_t CopyQueueTime::TakeEarliest(int64_t begin, int64_t end, Nanos time) {
  begin = std::max(begin, end - size_);
  int64_t last = begin - 1;
  int64_t base = begin - Wrap(begin);  // position of kernel 0 of the iteration that is walked
  int64_t kernel = Wrap(begin);
  while (time > 0) {
    kernel = NextFree(kernel);
    if (kernel == size_) {
      base += size_;
      kernel = 0;
      if (base >= end) break;
      continue;
    }
    if (base + kernel >= end) break;
    const Nanos taken = std::min(time, free_[kernel]);
    Use(kernel, taken);
    time -= taken;
    last = base + kernel;
  }
  return last;
}

int64_t CopyQueueTime::TakeLatest(int64_t begin, int64_t end, Nanos time) {
  begin = std::max(begin, end - size_);
  int64_t first = end;
  int64_t kernel = Wrap(end - 1);
  int64_t base = end - 1 - kernel;
  while (time > 0) {
    kernel = PreviousFree(kernel);
    if (kernel < 0) {
      base -= size_;
      kernel = size_ - 1;
      if (base + kernel < begin) break;
      continue;
    }
    if (base + kernel < begin) break;
    const Nanos taken = std::min(time, free_[kernel]);
    Use(kernel, taken);
    time -= taken;
    first = base + kernel;
  }
  return first;
}

}  // namespace spillway::policy
