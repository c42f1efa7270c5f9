#include "policy/offline/lp_model.h"

#include <algorithm>
#include <limits>

namespace spillway::policy {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Bytes of one tier, or of both if they may change it.
struct Pools {
  bool host = false, ssd = false;
  double rate_in = 0, rate_out = 0;  // of both tiers together
  // Per interval.
  std::vector<int> evicted;       // x: bytes away in it
  std::vector<int> first_writes;  // y: the part that is away for the first time since its content was made
  std::vector<int> unread;        // e: the part that is overwritten before it was read back
  std::vector<int> unread_host;   // the part of that in the host
  // Flows, per slot.
  std::vector<int> out_host, out_ssd, in_host, in_ssd, first_drops;
  std::vector<int> drops_host, drops_ssd, demoted, promoted;  // kMayChange only: later drops, tier changes
  // Contents of each pool at the end of each slot: after what is due then has left, before what begins then.
  std::vector<int> unwritten;      // to be written, and allowed to be
  std::vector<int> ahead;          // written, and not yet due
  std::vector<int> to_drop;        // used for the last time, to be dropped for the first time
  std::vector<int> to_drop_again;  // kMayChange only
  std::vector<int> written;        // and not yet dropped
  std::vector<int> away;
  std::vector<int> loaded;          // and not yet due
  std::vector<int> in_host_memory;  // kMayChange only
};

class ModelMaker {
 public:
  ModelMaker(const LpTimeline& timeline, const Machine& machine, LpTiers tiers)
      : timeline_(timeline),
        machine_(machine),
        tiers_(tiers),
        slots_(static_cast<uint32_t>(timeline.slots.size())) {
    model_.byte_unit = static_cast<double>(machine.gpu_bytes) / 1024;
    model_.nano_unit = model_.byte_unit / machine.pcie_in * kNanosPerSecond;
    releases_.resize(slots_);
    begins_.resize(slots_);
    dues_.resize(slots_);
  }

  LpModel Make() {
    for (uint32_t i = 0; i < timeline_.intervals.size(); ++i) {
      const LpInterval& interval = timeline_.intervals[i];
      if (!interval.never_dirty) releases_[interval.release].push_back(i);
      begins_[interval.after].push_back(i);
      dues_[interval.before].push_back(i);
    }
    AddGaps();
    ChoosePools();
    for (Pools& pools : pools_) {
      AddIntervals(&pools);
      AddSlots(&pools);
      AddChains(pools);
      AddLevels(pools);
    }
    AddTimes();
    AddSizes();
    AddLinks();
    AddMemory();
    model_.evicted_host = pools_[0].evicted;
    if (tiers_ == LpTiers::kSsdOnly) std::swap(model_.evicted_host, model_.evicted_ssd);
    if (tiers_ == LpTiers::kKeep) model_.evicted_ssd = pools_[1].evicted;
    const std::vector<int> none(timeline_.intervals.size(), -1);
    if (model_.evicted_host.empty()) model_.evicted_host = none;
    if (model_.evicted_ssd.empty()) model_.evicted_ssd = none;
    model_.away = pools_[0].away;
    model_.written = pools_[0].written;
    return std::move(model_);
  }

 private:
  int Column(double upper = kInfinity, double cost = 0, double lower = 0) {
    LpProblem& problem = model_.problem;
    problem.cost.push_back(cost);
    problem.lower.push_back(lower);
    problem.upper.push_back(upper);
    return static_cast<int>(problem.cost.size()) - 1;
  }
  std::vector<int> Columns(size_t count) {
    std::vector<int> columns(count);
    for (int& column : columns) column = Column();
    return columns;
  }
  void Row(LpSum* sum, double lower, double upper) { sum->EndRow(&model_.problem, lower, upper); }
  double InBytes(Bytes bytes) const { return static_cast<double>(bytes) / model_.byte_unit; }
  double InTime(Nanos time) const { return static_cast<double>(time) / model_.nano_unit; }
  double InRate(double rate) const { return rate / kNanosPerSecond * model_.nano_unit / model_.byte_unit; }
  uint32_t Previous(uint32_t slot) const { return slot == 0 ? slots_ - 1 : slot - 1; }

  // Adds the gaps, and their sum from the last point on up to each point.
  void AddGaps() {
    for (const LpSlot& slot : timeline_.slots) {
      model_.gaps.push_back(slot.stretches ? Column(kInfinity, 1) : -1);
    }
    model_.waited = Columns(slots_);
    for (uint32_t p = 0; p < slots_; ++p) {
      LpSum sum;
      sum.Add(model_.waited[p], 1).Add(model_.gaps[p], -1);
      if (p > 0) sum.Add(model_.waited[p - 1], -1);
      Row(&sum, 0, 0);
    }
  }

  void ChoosePools() {
    Pools host, ssd, both;
    host.host = both.host = ssd.ssd = both.ssd = true;
    host.rate_in = both.rate_in = InRate(machine_.pcie_in);
    host.rate_out = both.rate_out = InRate(machine_.pcie_out);
    ssd.rate_in = InRate(std::min(machine_.pcie_in, machine_.ssd_read));
    ssd.rate_out = InRate(std::min(machine_.pcie_out, machine_.ssd_write));
    switch (tiers_) {
      case LpTiers::kHostOnly: pools_ = {host}; break;
      case LpTiers::kSsdOnly: pools_ = {ssd}; break;
      case LpTiers::kMayChange: pools_ = {both}; break;
      case LpTiers::kKeep: pools_ = {host, ssd}; break;
    }
  }

  // A content is written for its first eviction, for which x and y are one column.
  void AddIntervals(Pools* pools) {
    const bool both = pools->host && pools->ssd;
    LpSum version;
    for (uint32_t i = 0; i < timeline_.intervals.size(); ++i) {
      const LpInterval& interval = timeline_.intervals[i];
      const double size = InBytes(interval.bytes);
      const int evicted = Column(size);
      int first = interval.never_dirty ? -1 : evicted;
      if (interval.place == 0) version = LpSum();
      if (!interval.never_dirty && interval.place > 0) {
        first = Column(size);
        LpSum less;
        less.Add(first, 1).Add(evicted, -1);
        Row(&less, -kInfinity, 0);
      }
      version.Add(first, 1);
      if (!interval.never_dirty && interval.place > 0) {
        LpSum written = version;
        written.Add(evicted, -1);
        Row(&written, 0, kInfinity);
      }
      pools->evicted.push_back(evicted);
      pools->first_writes.push_back(first);
      pools->unread.push_back(interval.returns ? -1 : Column(size));
      pools->unread_host.push_back(interval.returns || !both ? -1 : Column(size));
      if (interval.returns) continue;
      LpSum less;
      less.Add(pools->unread[i], 1).Add(evicted, -1);
      Row(&less, -kInfinity, 0);
      if (!both) continue;
      less.Add(pools->unread_host[i], 1).Add(pools->unread[i], -1);
      Row(&less, -kInfinity, 0);
    }
  }

  void AddSlots(Pools* pools) {
    const std::vector<int> none(slots_, -1);
    const bool both = pools->host && pools->ssd;
    const auto add = [&](bool there) { return there ? Columns(slots_) : none; };
    pools->out_host = add(pools->host);
    pools->out_ssd = add(pools->ssd);
    pools->in_host = add(pools->host);
    pools->in_ssd = add(pools->ssd);
    for (auto* list : {&pools->first_drops, &pools->unwritten, &pools->ahead, &pools->to_drop,
                       &pools->written, &pools->away, &pools->loaded})
      *list = Columns(slots_);
    for (auto* list : {&pools->drops_host, &pools->drops_ssd, &pools->demoted, &pools->promoted,
                       &pools->to_drop_again, &pools->in_host_memory})
      *list = add(both);
  }

  // Relates the contents of each pool at the end of a slot to those at the end of the slot before.
  void AddChains(const Pools& pools) {
    const bool both = pools.host && pools.ssd;
    for (uint32_t p = 0; p < slots_; ++p) {
      const uint32_t q = Previous(p);
      LpSum unwritten, ahead, to_drop, again, written, away, loaded, host;
      const auto chain = [&](LpSum* sum, const std::vector<int>& pool) {
        sum->Add(pool[p], -1).Add(pool[q], 1);
      };
      chain(&unwritten, pools.unwritten);
      chain(&ahead, pools.ahead);
      chain(&to_drop, pools.to_drop);
      chain(&written, pools.written);
      chain(&away, pools.away);
      chain(&loaded, pools.loaded);
      unwritten.Add(pools.out_host[p], -1).Add(pools.out_ssd[p], -1);
      ahead.Add(pools.out_host[p], 1).Add(pools.out_ssd[p], 1);
      written.Add(pools.out_host[p], 1).Add(pools.out_ssd[p], 1).Add(pools.first_drops[p], -1);
      to_drop.Add(pools.first_drops[p], -1);
      away.Add(pools.first_drops[p], 1).Add(pools.in_host[p], -1).Add(pools.in_ssd[p], -1);
      loaded.Add(pools.in_host[p], 1).Add(pools.in_ssd[p], 1);
      if (both) {
        chain(&again, pools.to_drop_again);
        again.Add(pools.drops_host[p], -1).Add(pools.drops_ssd[p], -1);
        away.Add(pools.drops_host[p], 1).Add(pools.drops_ssd[p], 1);
        chain(&host, pools.in_host_memory);
        host.Add(pools.out_host[p], 1).Add(pools.in_host[p], -1).Add(pools.drops_host[p], 1);
        host.Add(pools.demoted[p], -1).Add(pools.promoted[p], 1);
      }
      for (uint32_t i : releases_[q]) unwritten.Add(pools.first_writes[i], 1);
      for (uint32_t i : begins_[q]) {
        to_drop.Add(pools.first_writes[i], 1);
        // If there is one tier, bytes that are elsewhere already are best dropped at once.
        (both ? again : away).Add(pools.evicted[i], 1).Add(pools.first_writes[i], -1);
      }
      for (uint32_t i : dues_[p]) {
        ahead.Add(pools.first_writes[i], -1);
        loaded.Add(pools.evicted[i], -1).Add(pools.unread[i], 1);
        away.Add(pools.unread[i], -1);
        host.Add(pools.unread_host[i], -1);
      }
      for (LpSum* sum : {&unwritten, &ahead, &to_drop, &written, &away, &loaded}) Row(sum, 0, 0);
      if (!both) continue;
      Row(&again, 0, 0);
      Row(&host, 0, 0);
    }
  }

  // Chains are circular, so their level must be set somewhere: at the last point, before what begins there.
  void AddLevels(const Pools& pools) {
    const uint32_t last = slots_ - 1;
    LpSum writes, evictions, written;
    writes.Add(pools.unwritten[last], 1).Add(pools.ahead[last], 1);
    evictions.Add(pools.away[last], 1).Add(pools.to_drop[last], 1).Add(pools.to_drop_again[last], 1);
    evictions.Add(pools.loaded[last], 1);
    written.Add(pools.written[last], 1).Add(pools.unwritten[last], 1).Add(pools.to_drop[last], -1);
    for (uint32_t i = 0; i < timeline_.intervals.size(); ++i) {
      const LpInterval& interval = timeline_.intervals[i];
      // A content that is never dirty has no first writes.
      const double kept = timeline_.OpenAtLast(interval.release, interval.before, interval.kept_over_a_round);
      const double away = timeline_.OpenAtLast(interval.after, interval.before, interval.away_over_a_round);
      writes.Add(pools.first_writes[i], -kept);
      evictions.Add(pools.evicted[i], -away);
      written.Add(pools.first_writes[i], away - kept);
    }
    for (LpSum* sum : {&writes, &evictions, &written}) Row(sum, 0, 0);
  }

  // An interval's bytes pass the link within it, however many others do; those of both tiers together, too.
  void AddTimes() {
    for (const Pools& pools : pools_) AddTimes({&pools}, pools.rate_in, pools.rate_out);
    if (pools_.size() == 2) AddTimes({&pools_[0], &pools_[1]}, pools_[0].rate_in, pools_[0].rate_out);
  }
  void AddTimes(const std::vector<const Pools*>& tiers, double rate_in, double rate_out) {
    for (uint32_t i = 0; i < timeline_.intervals.size(); ++i) {
      const LpInterval& interval = timeline_.intervals[i];
      LpSum evicted, written;
      for (const Pools* pools : tiers) {
        evicted.Add(pools->evicted[i], 1);
        written.Add(pools->first_writes[i], 1);
      }
      if (interval.returns) AddTime(&evicted, interval, rate_in, interval.after, interval.away_over_a_round);
      if (!interval.never_dirty)
        AddTime(&written, interval, rate_out, interval.release, interval.kept_over_a_round);
    }
  }
  void AddTime(LpSum* sum, const LpInterval& interval, double rate, uint32_t from, bool over_a_round) {
    const uint32_t to = interval.before;
    const double most = rate * InTime(timeline_.Between(from, to) + (over_a_round ? timeline_.ideal : 0));
    if (InBytes(interval.bytes) <= most) return;
    sum->Add(model_.waited[to], -rate).Add(model_.waited[from], rate);
    const int rounds = (to <= from ? 1 : 0) + (over_a_round ? 1 : 0);
    sum->Add(model_.waited[slots_ - 1], -rate * rounds);
    Row(sum, -kInfinity, most);
  }

  // Limits all tiers together: no more of an interval is away than the tensor, and a content is written once
  // at most.
  void AddSizes() {
    LpSum written;
    for (uint32_t i = 0; i < timeline_.intervals.size(); ++i) {
      const LpInterval& interval = timeline_.intervals[i];
      LpSum evicted;
      if (interval.place == 0) written = LpSum();
      for (const Pools& pools : pools_) {
        evicted.Add(pools.evicted[i], 1);
        written.Add(pools.first_writes[i], 1);
      }
      if (pools_.size() > 1) Row(&evicted, -kInfinity, InBytes(interval.bytes));
      const bool last = i + 1 == timeline_.intervals.size() || timeline_.intervals[i + 1].place == 0;
      if (last && interval.place > 0 && !interval.never_dirty)
        Row(&written, -kInfinity, InBytes(interval.bytes));
    }
  }

  // rate * (duration + gap) >= the flows of a slot. A single flow in a slot without a gap is bounded as a
  // column.
  void AddLink(const std::vector<std::pair<const std::vector<int>*, double>>& flows, double rate) {
    for (uint32_t p = 0; p < slots_; ++p) {
      const double most = rate * InTime(timeline_.slots[p].duration);
      LpSum sum;
      int only = -1, count = 0;
      for (const auto& [columns, weight] : flows) {
        if ((*columns)[p] < 0) continue;
        sum.Add((*columns)[p], weight);
        only = (*columns)[p];
        ++count;
      }
      if (count == 0) continue;
      if (count == 1 && model_.gaps[p] < 0) {
        model_.problem.upper[only] = std::min(model_.problem.upper[only], most);
        continue;
      }
      sum.Add(model_.gaps[p], -rate);
      Row(&sum, -kInfinity, most);
    }
  }

  void AddLinks() {
    const Pools& a = pools_.front();
    const Pools& b = pools_.back();
    const bool two = pools_.size() == 2;
    const Pools& ssd = two ? b : a;
    if (tiers_ == LpTiers::kSsdOnly) {
      AddLink({{&a.out_ssd, 1}}, a.rate_out);
      AddLink({{&a.in_ssd, 1}}, a.rate_in);
    } else {
      AddLink({{&a.out_host, 1}, {&ssd.out_ssd, 1}}, InRate(machine_.pcie_out));
      AddLink({{&a.in_host, 1}, {&ssd.in_ssd, 1}}, InRate(machine_.pcie_in));
      AddLink({{&ssd.out_ssd, 1}, {&ssd.demoted, 1}}, InRate(machine_.ssd_write));
      AddLink({{&ssd.in_ssd, 1}, {&ssd.promoted, 1}}, InRate(machine_.ssd_read));
    }
    for (const SharedLimit& limit : LinkLimits(machine_)) {
      const double in = 1 / InRate(1 / limit.per_byte_read), out = 1 / InRate(1 / limit.per_byte_written);
      AddLink({{&a.in_host, in}, {&a.out_host, out}, {&ssd.in_ssd, in}, {&ssd.out_ssd, out}}, 1);
    }
    if (!machine_.ssd_shared || tiers_ == LpTiers::kHostOnly) return;
    for (const SharedLimit& limit : SharedLimits(machine_)) {
      const double read = InRate(1 / limit.per_byte_read), write = InRate(1 / limit.per_byte_written);
      AddLink({{&ssd.out_ssd, 1 / write},
               {&ssd.demoted, 1 / write},
               {&ssd.in_ssd, 1 / read},
               {&ssd.promoted, 1 / read}},
              1);
    }
  }

  void AddMemory() {
    const double host = InBytes(machine_.host_bytes);
    for (uint32_t p = 0; p < slots_; ++p) {
      const double need = InBytes(static_cast<Bytes>(timeline_.slots[p].need));
      if (pools_.size() == 1) {
        model_.problem.lower[pools_[0].away[p]] = need;
      } else if (need > 0) {
        LpSum sum;
        sum.Add(pools_[0].away[p], 1).Add(pools_[1].away[p], 1);
        Row(&sum, need, kInfinity);
      }
      LpSum sum;
      sum.Add(pools_[0].away[p], 1).Add(pools_[0].written[p], 1);
      if (tiers_ == LpTiers::kKeep) {
        Row(&sum, -kInfinity, host);
      } else if (tiers_ == LpTiers::kMayChange) {
        model_.problem.upper[pools_[0].in_host_memory[p]] = host;
        sum.Add(pools_[0].in_host_memory[p], -1);
        Row(&sum, 0, kInfinity);
      }
    }
  }

  const LpTimeline& timeline_;
  const Machine& machine_;
  const LpTiers tiers_;
  const uint32_t slots_;
  LpModel model_;
  std::vector<std::vector<uint32_t>> releases_, begins_, dues_;  // intervals by point
  std::vector<Pools> pools_;
};

}  // namespace

LpModel MakeLpModel(const LpTimeline& timeline, const Machine& machine, LpTiers tiers) {
  return ModelMaker(timeline, machine, tiers).Make();
}

}  // namespace spillway::policy
