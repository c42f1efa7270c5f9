#include "policy/planner/transfer_choice.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "policy/model/range_max.h"
#include "policy/planner/copy_queue_time.h"

namespace spillway::policy {
namespace {

// One walk over the iteration. It begins at the kernel with the fewest live bytes, where the least has to be
// away already, and comes to every kernel once: positions are start .. start + kernels - 1. At a kernel that
// exceeds the budget it takes pieces of idle tensors until the rest fits.
//
// An idle interval is a candidate while the walk is inside of it. Intervals may go over the iteration's end,
// so each is entered up to three times, moved by whole iterations (Candidate::shift). Candidates are ordered
// by their next use: the farthest one leaves, since its memory is free for the longest (Belady's rule). Two
// ledgers, of the copy queue out and of the one in, have the time that is not given to transfers yet: a
// candidate without time to be written, or to return, is passed over as long as another has it.
class Sweep {
 public:
  Sweep(const Workload& workload, const Lifetimes& lifetimes, const std::vector<Nanos>& kernel_times,
        const ChoiceOptions& options)
      : workload_(workload),
        lifetimes_(lifetimes),
        options_(options),
        size_(static_cast<int64_t>(kernel_times.size())),
        writes_(kernel_times),
        reads_(kernel_times),
        start_(std::min_element(lifetimes.live_bytes.begin(), lifetimes.live_bytes.end()) -
               lifetimes.live_bytes.begin()),
        entering_(kernel_times.size()),
        change_(kernel_times.size() + 1, 0),
        taken_pieces_(lifetimes.intervals.size(), 0),
        written_pieces_(lifetimes.versions, 0),
        spare_(Spare()) {
    for (uint32_t i = 0; i < lifetimes.intervals.size(); ++i) {
      for (int64_t shift : {-size_, int64_t{0}, size_}) Enter(i, shift);
    }
  }

  std::vector<PlannedEviction> Run() {
    for (int64_t op = 0; op < size_; ++op) {
      const int64_t position = start_ + op;
      away_ += change_[op];
      for (const Candidate& candidate : entering_[op]) Insert(candidate);
      while (!candidates_.empty() && candidates_.begin()->before <= position) Erase(*candidates_.begin());
      const int64_t budget = static_cast<int64_t>(options_.budget_bytes);
      Relieve(position, lifetimes_.live_bytes[position % size_] - budget);
    }
    return std::move(evictions_);
  }

 private:
  // An idle interval, moved by whole iterations to where it lies over the walk.
  struct Candidate {
    int64_t before;
    uint32_t interval;
    int64_t shift;
    bool operator<(const Candidate& other) const {
      return std::pair(before, interval) < std::pair(other.before, other.interval);
    }
  };

  void Enter(uint32_t i, int64_t shift) {
    const IdleInterval& interval = lifetimes_.intervals[i];
    const int64_t first = std::max<int64_t>(interval.after + shift + 1, start_);
    const int64_t before = interval.before + shift;
    if (first < start_ + size_ && first < before) entering_[first - start_].push_back({before, i, shift});
  }

  void Insert(const Candidate& candidate) {
    candidates_.insert(candidate);
    const IdleInterval& interval = Of(candidate);
    if (options_.one_way_first && (!interval.returns || interval.never_dirty)) one_way_.insert(candidate);
  }
  void Erase(Candidate candidate) {
    one_way_.erase(candidate);
    candidates_.erase(candidate);
  }

  // The free bytes at each place of the walk while nothing is away.
  RangeMax Spare() const {
    std::vector<int64_t> spare(static_cast<size_t>(options_.one_way_first ? size_ : 0));
    for (size_t op = 0; op < spare.size(); ++op) {
      spare[op] = static_cast<int64_t>(options_.budget_bytes) -
                  lifetimes_.live_bytes[(start_ + static_cast<int64_t>(op)) % size_];
    }
    return RangeMax(spare);
  }

  // The first position after this one where fewer bytes have to be away than are away now; the walk's end
  // when there is none.
  int64_t NeededUntil(int64_t position) const {
    int64_t begin = position - start_ + 1, end = size_;
    while (begin < end) {
      const int64_t middle = (begin + end) / 2;
      if (spare_.Max(static_cast<size_t>(position - start_ + 1), static_cast<size_t>(middle) + 1) >= -away_)
        end = middle;
      else
        begin = middle + 1;
    }
    return start_ + begin;
  }

  // Takes candidates until `need` bytes are away at `position`.
  void Relieve(int64_t position, int64_t need) {
    passed_ = passed_for_writes_ = passed_one_way_ = kNothingPassed;
    while (need > away_ && TakeOne(position, need - away_)) {
    }
  }

  // Takes the candidate with the farthest next use among those with time to leave and to return. If there is
  // none, it takes one with time to leave, and else any: the kernel has to fit. False when there are no
  // candidates.
  bool TakeOne(int64_t position, int64_t deficit) {
    if (!one_way_.empty() &&
        TakeFarthest(one_way_, position, deficit, /*reads=*/false, NeededUntil(position), &passed_one_way_))
      return true;
    if (options_.read_rate > 0 &&
        TakeFarthest(candidates_, position, deficit, /*reads=*/true, position, &passed_))
      return true;
    if (TakeFarthest(candidates_, position, deficit, /*reads=*/false, position, &passed_for_writes_))
      return true;
    if (candidates_.empty()) return false;
    const Candidate farthest = *candidates_.rbegin();
    Take(farthest, position, std::min(PiecesFor(deficit), Rest(farthest)), true);
    if (Rest(farthest) == 0) Erase(farthest);
    return true;
  }

  // Takes the candidate of `list` with the farthest next use that has time, and that is away until `least` or
  // longer. `passed` is the last candidate considered at this position. The scan goes on from it: free time
  // only gets less while the walk stays at a position, so a candidate that was passed over has no time later
  // either.
  bool TakeFarthest(const std::set<Candidate>& list, int64_t position, int64_t deficit, bool reads,
                    int64_t least, Candidate* passed) {
    if (reads && reads_.Free(position + 1, position + 1 + size_) == 0) return false;
    const auto end = list.upper_bound(*passed);
    for (auto it = std::make_reverse_iterator(end); it != list.rend() && it->before >= least; ++it) {
      uint32_t pieces = TakeablePieces(*it, position, deficit);
      if (reads) pieces = std::min(pieces, ReadablePieces(*it, position));
      *passed = *it;
      if (pieces == 0) continue;
      const Candidate taken = *it;
      Take(taken, position, pieces, WritePieces(taken) != 0);
      if (Rest(taken) == 0) Erase(taken);
      return true;
    }
    return false;
  }

  const IdleInterval& Of(const Candidate& candidate) const {
    return lifetimes_.intervals[candidate.interval];
  }
  Bytes TensorBytes(const Candidate& candidate) const {
    return workload_.tensors[Of(candidate).tensor].bytes;
  }
  uint32_t Rest(const Candidate& candidate) const {
    return PiecesOf(TensorBytes(candidate), options_.piece_bytes) - taken_pieces_[candidate.interval];
  }
  uint32_t PiecesFor(int64_t bytes) const {
    if (options_.piece_bytes == 0) return 1;
    return static_cast<uint32_t>((static_cast<Bytes>(bytes) + options_.piece_bytes - 1) /
                                 options_.piece_bytes);
  }
  // The number of next pieces that no eviction of the same content has written yet; 0 when the next piece is
  // written.
  uint32_t WritePieces(const Candidate& candidate) const {
    const IdleInterval& interval = Of(candidate);
    if (interval.never_dirty) return 0;
    return written_pieces_[interval.version] > taken_pieces_[candidate.interval] ? 0 : Rest(candidate);
  }
  // The first position whose time the write may use.
  int64_t WriteFrom(const Candidate& candidate) const {
    const IdleInterval& interval = Of(candidate);
    return candidate.shift + 1 +
           (options_.early_writes ? interval.written : static_cast<int64_t>(interval.after));
  }

  uint32_t TakeablePieces(const Candidate& candidate, int64_t position, int64_t deficit) const {
    uint32_t pieces = std::min(PiecesFor(deficit), Rest(candidate));
    if (WritePieces(candidate) == 0) {
      if (Of(candidate).never_dirty) return pieces;
      return std::min(pieces, written_pieces_[Of(candidate).version] - taken_pieces_[candidate.interval]);
    }
    if (!options_.write_ledger) return pieces;
    if (writes_.Free(position - size_, position) == 0) return 0;  // the copy queue is full
    const double bytes = static_cast<double>(writes_.Free(WriteFrom(candidate), position)) *
                         (options_.write_rate / kNanosPerSecond);
    const Bytes unit = options_.piece_bytes == 0 ? TensorBytes(candidate)
                                                 : std::min(options_.piece_bytes, TensorBytes(candidate));
    return static_cast<uint32_t>(std::min<double>(pieces, std::floor(bytes / static_cast<double>(unit))));
  }

  uint32_t ReadablePieces(const Candidate& candidate, int64_t position) const {
    const uint32_t rest = Rest(candidate);
    if (!Of(candidate).returns) return rest;
    const Bytes unit = options_.piece_bytes == 0 ? TensorBytes(candidate)
                                                 : std::min(options_.piece_bytes, TensorBytes(candidate));
    const double bytes = static_cast<double>(reads_.Free(position + 1, candidate.before)) *
                         (options_.read_rate / kNanosPerSecond);
    return static_cast<uint32_t>(std::min<double>(rest, std::floor(bytes / static_cast<double>(unit))));
  }

  void Take(const Candidate& candidate, int64_t position, uint32_t pieces, bool write) {
    const IdleInterval& interval = Of(candidate);
    const uint32_t first = taken_pieces_[candidate.interval];
    const Bytes bytes = BytesOfPieces(TensorBytes(candidate), options_.piece_bytes, first, first + pieces);
    int64_t from = candidate.shift + interval.after + 1;
    if (write) {
      if (options_.write_ledger) {
        const Nanos time = TimeFor(bytes, options_.write_rate);
        const bool in_time = time <= writes_.Free(WriteFrom(candidate), position);
        const int64_t last = writes_.TakeEarliest(WriteFrom(candidate), position, time);
        from = in_time ? std::max(from, last + 1) : position;
      }
      uint32_t& written = written_pieces_[interval.version];
      written = std::max(written, first + pieces);
    }
    int64_t until = candidate.before;
    if (options_.read_rate > 0 && interval.returns)
      until = reads_.TakeLatest(position + 1, candidate.before, TimeFor(bytes, options_.read_rate));
    if (!options_.early_returns) until = candidate.before;
    from = std::min(from, position);
    taken_pieces_[candidate.interval] += pieces;
    evictions_.push_back({candidate.interval, first, first + pieces,
                          static_cast<uint32_t>(from - candidate.shift), PlanTier::kHost});
    Count(from, position, until, static_cast<int64_t>(bytes));
  }

  // Counts `bytes` as away over [from, before); the walk is at `position`. The part of the stretch before the
  // walk's start is counted at the walk's end, where the next iteration has it.
  void Count(int64_t from, int64_t position, int64_t before, int64_t bytes) {
    away_ += bytes;
    change_[std::min(before - start_, size_)] -= bytes;
    if (from < start_ && from + size_ > position) change_[from + size_ - start_] += bytes;
  }

  const Workload& workload_;
  const Lifetimes& lifetimes_;
  const ChoiceOptions& options_;
  const int64_t size_;
  CopyQueueTime writes_;
  CopyQueueTime reads_;  // used with a read rate only
  const int64_t start_;
  std::vector<std::vector<Candidate>> entering_;  // by place of the walk
  std::vector<int64_t> change_;                   // of away_, by place
  std::vector<uint32_t> taken_pieces_;            // of each interval, from piece 0 on
  std::vector<uint32_t> written_pieces_;          // of each version, from piece 0 on
  RangeMax spare_;
  static constexpr Candidate kNothingPassed{std::numeric_limits<int64_t>::max(), 0, 0};
  std::set<Candidate> candidates_,
      one_way_;  // the latter: those of the former that move in one direction only
  // The last candidates considered at this position: with time to return, without it, and of one_way_.
  Candidate passed_ = kNothingPassed, passed_for_writes_ = kNothingPassed, passed_one_way_ = kNothingPassed;
  int64_t away_ = 0;
  std::vector<PlannedEviction> evictions_;
};

}  // namespace

std::vector<PlannedEviction> ChooseTransfers(const Workload& workload, const Lifetimes& lifetimes,
                                             const std::vector<Nanos>& kernel_times,
                                             const ChoiceOptions& options) {
  return Sweep(workload, lifetimes, kernel_times, options).Run();
}

}  // namespace spillway::policy
