#include "policy/planner/tier_choice.h"

#include <algorithm>
#include <numeric>

#include "policy/model/range_max.h"
#include "policy/planner/copy_queue_time.h"
#include "policy/simulator/due_parts.h"

namespace spillway::policy {
namespace {

constexpr Nanos kFirstWindow = 3'000'000'000;
constexpr double kSsdEfficiency = 0.97;      // of the SSD's speed, that reads and writes are planned for
constexpr Bytes kHostMargin = 256ull << 20;  // at most; a sixty-fourth of a small host

std::vector<Nanos> Scaled(const std::vector<Nanos>& times, double factor) {
  std::vector<Nanos> scaled(times.size());
  std::transform(times.begin(), times.end(), scaled.begin(),
                 [factor](Nanos time) { return static_cast<Nanos>(static_cast<double>(time) * factor); });
  return scaled;
}

// The start of each kernel, over three iterations: the one before, this one, the next.
class Timeline {
 public:
  explicit Timeline(const std::vector<Nanos>& times) : size_(static_cast<int64_t>(times.size())) {
    starts_.reserve(3 * times.size() + 1);
    starts_.push_back(0);
    for (int round = 0; round < 3; ++round) {
      for (Nanos time : times) starts_.push_back(starts_.back() + time);
    }
  }
  // `position`: -kernels .. 2 * kernels.
  Nanos Start(int64_t position) const { return starts_[position + size_]; }
  // The first position that starts at `time` or later.
  int64_t FirstFrom(Nanos time) const {
    return std::lower_bound(starts_.begin(), starts_.end(), time) - starts_.begin() - size_;
  }

 private:
  const int64_t size_;
  std::vector<Nanos> starts_;
};

// Moves evictions from the host to the SSD until the host's memory suffices at every kernel.
//
// Two ledgers have the SSD's free time, for reads and for writes. An eviction is moved if it has time to be
// read within a window before its next use, and to be written within a window after its content was made. The
// list is walked again and again with windows of twice the length, so evictions whose transfers lie close to
// their uses go first. The last window is longer than the iteration; evictions that have no time even then
// are moved all the same, since the host cannot hold them.
//
// on_host_ has the bytes on the host at each kernel, with those of evictions that go over the iteration's end
// folded into it. An eviction is passed over for good if the host is not too full at any kernel while it is
// away.
class TierSweep {
 public:
  TierSweep(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine, TransferPlan* plan)
      : workload_(workload),
        lifetimes_(lifetimes),
        machine_(machine),
        plan_(plan),
        size_(static_cast<int64_t>(plan->kernel_times.size())),
        timeline_(plan->kernel_times),
        reads_(Scaled(plan->kernel_times, kSsdEfficiency)),
        writes_(reads_),
        on_host_(AwayBytes(workload, lifetimes, machine.piece_bytes, *plan, /*host_only=*/false)),
        limit_(static_cast<int64_t>(machine.host_bytes - std::min(kHostMargin, machine.host_bytes / 64))) {}

  void Run(TierOrder order) {
    std::vector<uint32_t> list = Ordered(order);
    for (Nanos window = kFirstWindow; !list.empty() && Overfull(); window *= 2) {
      const bool last = window > 2 * timeline_.Start(size_) - timeline_.Start(0);
      std::vector<uint32_t> left;
      for (uint32_t a : list) {
        if (!Overfull()) return;
        if (!Relieves(a)) continue;  // the host only gets emptier: it never will
        if (!last && !Fits(a, window)) {
          left.push_back(a);
        } else {
          Accept(a, window);
        }
      }
      list = std::move(left);
    }
  }

 private:
  Bytes BytesOf(const PlannedEviction& eviction) const {
    const Bytes bytes = workload_.tensors[lifetimes_.intervals[eviction.interval].tensor].bytes;
    return BytesOfPieces(bytes, machine_.piece_bytes, eviction.first_piece, eviction.last_piece);
  }

  bool Overfull() const { return on_host_.Max(0, size_) > limit_; }
  bool Relieves(uint32_t a) const {
    const int64_t from = plan_->evictions[a].from;
    const int64_t before = Interval(a).before;
    if (from >= size_) return on_host_.Max(from - size_, before - size_) > limit_;
    return on_host_.Max(from, std::min(before, size_)) > limit_ ||
           (before > size_ && on_host_.Max(0, before - size_) > limit_);
  }
  const IdleInterval& Interval(uint32_t a) const {
    return lifetimes_.intervals[plan_->evictions[a].interval];
  }

  std::vector<uint32_t> Ordered(TierOrder order) const {
    std::vector<uint32_t> list(plan_->evictions.size());
    std::iota(list.begin(), list.end(), 0);
    std::stable_sort(list.begin(), list.end(),
                     [this](uint32_t a, uint32_t b) { return Interval(a).before < Interval(b).before; });
    if (order == TierOrder::kFarthestFirst) std::reverse(list.begin(), list.end());
    if (order == TierOrder::kSpread) list = Spread(list);
    return list;
  }
  // Orders by the fractional parts of multiples of the golden ratio: the first n of the order, and the SSD's
  // work with them, are spread evenly over the iteration for any n.
  static std::vector<uint32_t> Spread(const std::vector<uint32_t>& list) {
    std::vector<std::pair<double, uint32_t>> keyed;
    double place = 0;
    for (uint32_t a : list) {
      place += 0.6180339887498949;
      if (place >= 1) place -= 1;
      keyed.emplace_back(place, a);
    }
    std::sort(keyed.begin(), keyed.end());
    std::vector<uint32_t> spread;
    spread.reserve(keyed.size());
    for (const auto& [key, a] : keyed) spread.push_back(a);
    return spread;
  }

  // The kernels during which an eviction's read and write may lie.
  int64_t ReadFrom(uint32_t a, Nanos window) const {
    const int64_t before = Interval(a).before;
    return std::max<int64_t>(plan_->evictions[a].from, timeline_.FirstFrom(timeline_.Start(before) - window));
  }
  int64_t WriteFrom(uint32_t a) const {
    return 1 + (plan_->early_writes ? Interval(a).written : static_cast<int64_t>(Interval(a).after));
  }
  int64_t WriteUntil(uint32_t a, Nanos window) const {
    const int64_t from = WriteFrom(a);
    return std::min<int64_t>(Interval(a).before, timeline_.FirstFrom(timeline_.Start(from) + window));
  }
  bool Fits(uint32_t a, Nanos window) const {
    const Bytes bytes = BytesOf(plan_->evictions[a]);
    return reads_.Free(ReadFrom(a, window), Interval(a).before) >= TimeFor(bytes, machine_.ssd_read) &&
           writes_.Free(WriteFrom(a), WriteUntil(a, window)) >= TimeFor(bytes, machine_.ssd_write);
  }

  void Accept(uint32_t a, Nanos window) {
    PlannedEviction& eviction = plan_->evictions[a];
    const Bytes bytes = BytesOf(eviction);
    const int64_t before = Interval(a).before;
    reads_.TakeLatest(ReadFrom(a, window), before, TimeFor(bytes, machine_.ssd_read));
    writes_.TakeEarliest(WriteFrom(a), WriteUntil(a, window), TimeFor(bytes, machine_.ssd_write));
    eviction.tier = PlanTier::kDisk;
    const int64_t delta = -static_cast<int64_t>(bytes);
    const int64_t from = eviction.from;
    on_host_.Add(std::min(from, size_), std::min(before, size_), delta);
    on_host_.Add(std::max<int64_t>(from - size_, 0), std::max<int64_t>(before - size_, 0), delta);
  }

  const Workload& workload_;
  const Lifetimes& lifetimes_;
  const Machine& machine_;
  TransferPlan* const plan_;
  const int64_t size_;
  const Timeline timeline_;
  CopyQueueTime reads_, writes_;
  RangeMax on_host_;
  const int64_t limit_;
};

}  // namespace

void ChooseTiers(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                 TierOrder order, TransferPlan* plan) {
  if (machine.host_bytes == 0) {
    for (PlannedEviction& eviction : plan->evictions) eviction.tier = PlanTier::kDisk;
    return;
  }
  for (PlannedEviction& eviction : plan->evictions) eviction.tier = PlanTier::kHost;
  if (!plan->evictions.empty()) TierSweep(workload, lifetimes, machine, plan).Run(order);
}

void FindReadLeads(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                   TransferPlan* plan) {
  const int64_t size = static_cast<int64_t>(plan->kernel_times.size());
  const Timeline timeline(plan->kernel_times);
  const double rate = std::max(machine.pcie_in - machine.ssd_read, machine.pcie_in / 2);
  std::vector<std::pair<int64_t, uint32_t>> reads;  // next use, eviction
  for (uint32_t a = 0; a < plan->evictions.size(); ++a) {
    const IdleInterval& interval = lifetimes.intervals[plan->evictions[a].interval];
    plan->evictions[a].read_lead = 0;
    if (plan->evictions[a].tier == PlanTier::kHost && interval.returns)
      reads.emplace_back(interval.before % size, a);
  }
  std::sort(reads.begin(), reads.end());
  // The walk goes backwards over two iterations, so that the end of the first one allows for the reads of the
  // next.
  Nanos latest = timeline.Start(2 * size);
  for (int64_t round : {int64_t{1}, int64_t{0}}) {
    for (auto it = reads.rbegin(); it != reads.rend(); ++it) {
      PlannedEviction& eviction = plan->evictions[it->second];
      const Bytes tensor = workload.tensors[lifetimes.intervals[eviction.interval].tensor].bytes;
      const Bytes bytes =
          BytesOfPieces(tensor, machine.piece_bytes, eviction.first_piece, eviction.last_piece);
      const Nanos due = timeline.Start(it->first + round * size);
      latest = std::min(latest, due) - TimeFor(bytes, rate);
      eviction.read_lead = due - latest;
    }
  }
}

}  // namespace spillway::policy
