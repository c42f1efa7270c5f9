#include "tests/policy/planner/plan_replay.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "policy/trace/lifetimes.h"

namespace spillway::policy {
namespace {

constexpr Nanos kForever = std::numeric_limits<Nanos>::max();
constexpr int64_t kNotYet = -1, kStays = -2;

class Job {
 public:
  Job(const RecordedWorkload& recorded, const MigrationPlan* plan, const ReplayOptions& options)
      : recorded_(recorded),
        plan_(plan),
        options_(options),
        size_(static_cast<int64_t>(recorded.workload.kernels.size())),
        last_(size_ * options.periods),
        named_(recorded.workload.kernels.size()),
        lifetimes_(FindLifetimes(recorded.workload)),
        tensors_(recorded.workload.tensors.size()) {
    for (int64_t k = 0; k < size_; ++k) {
      const WorkloadKernel& kernel = recorded.workload.kernels[k];
      std::ranges::set_union(kernel.inputs, kernel.outputs, std::back_inserter(named_[k]));
    }
    // What lives at the start lies on the host, as after a start on demand.
    for (uint32_t t = 0; t < tensors_.size(); ++t) {
      if (!lifetimes_.live_at_start[t]) continue;
      tensors_[t].live = tensors_[t].copy = true;
      QueueFetch(t, NextUse(t, 0));
    }
  }

  Replay Run() {
    while (completed_ < last_) {
      while (Go()) {
      }
      const Nanos next = NextEvent();
      if (next == kForever) {
        if (EvictInNeed()) continue;
        result_.stuck = true;
        return result_;
      }
      Advance(next);
    }
    const int64_t from = options_.periods - 3;
    result_.iteration = (ends_.back() - ends_[static_cast<size_t>(from)]) / 2;
    result_.fetched /= 2;
    result_.spilled /= 2;
    return result_;
  }

 private:
  struct Tensor {
    bool live = false;     // handed out and used, not freed
    bool on_gpu = false;   // holds memory there; its content may be on the way
    bool arrived = false;  // the content is there
    bool copy = false;     // good content elsewhere
    bool moving = false;
    PlanTier tier = PlanTier::kHost;
    int64_t last_use = kNotYet;   // as the host has launched
    int64_t drop_after = kStays;  // leaves when a copy is there, if no launch after this one uses it
  };
  struct Transfer {
    bool active = false;
    uint32_t tensor = 0;
    Nanos end = 0;
  };

  Bytes BytesOf(uint32_t t) const { return recorded_.workload.tensors[t].bytes; }
  Bytes Free() const { return options_.machine.gpu_bytes - used_; }
  bool Measured() const { return completed_ >= last_ - 2 * size_; }
  void Hold(uint32_t t) {
    tensors_[t].on_gpu = true;
    used_ += BytesOf(t);
    result_.peak = std::max(result_.peak, used_);
  }
  void Release(uint32_t t) {
    if (!std::exchange(tensors_[t].on_gpu, false)) return;
    tensors_[t].arrived = false;
    used_ -= BytesOf(t);
  }

  // The first use at launch `from` or later.
  int64_t NextUse(uint32_t t, int64_t from) const {
    const std::vector<uint32_t>& uses = lifetimes_.uses[t];
    const int64_t lap = from / size_ * size_;
    const auto next = std::ranges::lower_bound(uses, static_cast<uint32_t>(from % size_));
    return next != uses.end() ? lap + *next : lap + size_ + uses.front();
  }

  // ---- What may start now. True when something did.
  bool Go() {
    bool any = StartKernel();
    any |= StepsOfPlan();
    any |= Drops();
    any |= HostLaunches();
    any |= StartCopies();
    any |= StartUrgent();
    if (!host_waits_) any |= StartFetches();
    return any;
  }

  // The tensor that the block is at the first use from that launch on.
  int64_t TensorAt(TraceBlock block, int64_t launch) const {
    for (int64_t k = launch; k < launch + size_; ++k) {
      for (const uint32_t t : named_[k % size_]) {
        if (recorded_.blocks[t] == block) return t;
      }
    }
    return -1;
  }

  bool StepsOfPlan() {
    if (plan_ == nullptr) return false;
    bool any = false;
    for (; steps_seen_ < completed_; ++steps_seen_) {
      const uint32_t position = static_cast<uint32_t>(steps_seen_ % size_);
      for (const PlanStep& step : plan_->steps) {
        const bool fetch = step.action == PlanAction::kFetch;
        if ((fetch ? (step.launch + size_ - 1) % size_ : step.launch) != position) continue;
        any = true;
        const int64_t lap = (steps_seen_ + (fetch ? 1 : 0)) / size_ * size_;
        const int64_t needed = lap + step.needed + (step.needed < step.launch ? size_ : 0);
        const int64_t t = TensorAt(step.block, fetch ? needed : steps_seen_);
        if (t < 0) {
          result_.stuck = true;
          continue;
        }
        Tensor& tensor = tensors_[t];
        if (fetch) {
          QueueFetch(static_cast<uint32_t>(t), needed);
        } else if (step.action == PlanAction::kCopyOut) {
          if (!tensor.copy && tensor.live) {
            tensor.tier = step.tier;
            copies_[static_cast<int>(step.tier)].insert({needed, static_cast<uint32_t>(t)});
          }
        } else if (step.action == PlanAction::kDrop) {
          tensor.drop_after = steps_seen_;
        }
      }
    }
    return any;
  }

  void QueueFetch(uint32_t t, int64_t due) { fetches_.insert({due, t}); }

  bool Drops() {
    bool any = false;
    for (uint32_t t = 0; t < tensors_.size(); ++t) {
      Tensor& tensor = tensors_[t];
      if (tensor.drop_after == kStays) continue;
      if (!tensor.live || tensor.last_use > tensor.drop_after) {
        tensor.drop_after = kStays;  // used again by now
      } else if (tensor.copy && !tensor.moving && tensor.arrived && completed_ > tensor.last_use) {
        Release(t);
        tensor.drop_after = kStays;
        any = true;
      }
    }
    return any;
  }

  // Launches until the host is too far ahead or must wait for room.
  bool HostLaunches() {
    host_waits_ = false;
    bool any = false;
    while (host_ < last_ && host_ - completed_ < static_cast<int64_t>(options_.run_ahead)) {
      FreeDead();
      const std::vector<uint32_t>& names = named_[host_ % size_];
      Bytes needed = 0;
      for (const uint32_t t : names) needed += tensors_[t].on_gpu ? 0 : BytesOf(t);
      if (needed > Free()) {
        host_waits_ = true;
        break;
      }
      for (const uint32_t t : names) Use(t);
      ++host_;
      any = true;
    }
    return any;
  }
  void Use(uint32_t t) {
    Tensor& tensor = tensors_[t];
    const bool was_live = std::exchange(tensor.live, true);
    if (!tensor.on_gpu) {
      Hold(t);
      if (was_live) {
        urgent_.push_back(t);
        result_.faults += Measured() ? 1 : 0;
      } else {
        tensor.arrived = true;
      }
    }
    tensor.last_use = host_;
    tensor.drop_after = kStays;
    const auto& outputs = recorded_.workload.kernels[host_ % size_].outputs;
    if (std::ranges::binary_search(outputs, t) && tensor.arrived) tensor.copy = false;
  }
  // Tensors whose life has ended for the host; their memory goes when the GPU is through with it.
  void FreeDead() {
    for (uint32_t t = 0; t < tensors_.size(); ++t) {
      Tensor& tensor = tensors_[t];
      const std::optional<TensorLife>& life = recorded_.workload.tensors[t].life;
      if (!life || !tensor.live || tensor.moving) continue;
      const int64_t first = tensor.last_use == kNotYet ? -size_ + life->first : LifeStart(t, tensor.last_use);
      const int64_t end = first + (life->last + size_ - life->first) % size_;
      if (host_ <= end || completed_ <= tensor.last_use) continue;
      Release(t);
      tensor = Tensor();
    }
  }
  int64_t LifeStart(uint32_t t, int64_t use) const {
    const int64_t first = recorded_.workload.tensors[t].life->first;
    return use - (use % size_ + size_ - first) % size_;
  }

  bool StartKernel() {
    if (running_ || completed_ >= host_) return false;
    for (const uint32_t t : named_[completed_ % size_]) {
      if (!tensors_[t].arrived) return false;
    }
    running_ = true;
    kernel_end_ = now_ + recorded_.workload.kernels[completed_ % size_].duration;
    return true;
  }

  // ---- Transfers. Lanes: out by tier, in by tier.
  bool StartCopies() {
    bool any = false;
    for (const int tier : {0, 1}) {
      Transfer& lane = lanes_[tier];
      auto& queue = copies_[tier];
      while (!lane.active && !queue.empty()) {
        const uint32_t t = queue.begin()->second;
        Tensor& tensor = tensors_[t];
        const bool writing =
            running_ && std::ranges::binary_search(recorded_.workload.kernels[completed_ % size_].outputs, t);
        if (tensor.live && tensor.arrived && !tensor.copy && writing) break;
        queue.erase(queue.begin());
        if (!tensor.live || !tensor.arrived || tensor.copy || tensor.moving) continue;
        // A launch that the host has let go and that writes it makes the copy worthless.
        bool stale = false;
        for (int64_t k = completed_ + (running_ ? 1 : 0); k < host_; ++k)
          stale |= std::ranges::binary_search(recorded_.workload.kernels[k % size_].outputs, t);
        if (stale) continue;
        StartTransfer(tier, t, tier == 0 ? options_.machine.pcie_out : options_.machine.ssd_write);
        any = true;
      }
    }
    return any;
  }

  // What the host has launched already.
  bool StartUrgent() {
    bool any = false;
    for (auto it = urgent_.begin(); it != urgent_.end();) {
      const int tier = static_cast<int>(tensors_[*it].tier);
      if (lanes_[2 + tier].active || tensors_[*it].moving) {
        ++it;
        continue;
      }
      StartTransfer(2 + tier, *it, tier == 0 ? options_.machine.pcie_in : options_.machine.ssd_read);
      it = urgent_.erase(it);
      any = true;
    }
    return any;
  }

  bool StartFetches() {
    bool any = false;
    bool held_up[2] = {false, false};
    for (auto it = fetches_.begin(); it != fetches_.end();) {
      const auto [due, t] = *it;
      Tensor& tensor = tensors_[t];
      if (NextUse(t, due) < host_ || !tensor.live || (tensor.on_gpu && tensor.drop_after == kStays)) {
        it = fetches_.erase(it);
        continue;
      }
      const int tier = static_cast<int>(tensor.tier);
      if (tensor.on_gpu || tensor.moving || held_up[tier] || lanes_[2 + tier].active) {
        ++it;
        continue;
      }
      if (BytesOf(t) > Free() || !HasSlack(due, BytesOf(t))) {
        held_up[tier] = true;
        ++it;
        continue;
      }
      Hold(t);
      ahead_.push_back({due, BytesOf(t)});
      StartTransfer(2 + tier, t, tier == 0 ? options_.machine.pcie_in : options_.machine.ssd_read);
      it = fetches_.erase(it);
      any = true;
    }
    return any;
  }
  // What is fetched ahead counts until its use.
  bool HasSlack(int64_t due, Bytes bytes) {
    if (plan_ == nullptr || plan_->expected_bytes.empty() || due <= host_) return true;
    std::erase_if(ahead_, [this](const auto& one) { return one.first <= completed_; });
    std::map<int64_t, int64_t> ending;
    int64_t loaded = static_cast<int64_t>(bytes);
    for (const auto& [until, held] : ahead_) {
      loaded += static_cast<int64_t>(held);
      ending[until] += static_cast<int64_t>(held);
    }
    for (int64_t k = completed_; k < due; ++k) {
      const auto end = ending.find(k);
      if (end != ending.end()) loaded -= end->second;
      if (plan_->expected_bytes[k % size_] + loaded > static_cast<int64_t>(plan_->budget_bytes)) return false;
    }
    return true;
  }

  void StartTransfer(int lane, uint32_t t, double rate) {
    tensors_[t].moving = true;
    lanes_[lane] = {
        true, t, now_ + std::max<Nanos>(1, static_cast<Nanos>(static_cast<double>(BytesOf(t)) / rate * 1e9))};
    if (lane >= 2 && completed_ >= last_ - size_)
      result_.last_fetches.push_back({t, static_cast<uint32_t>(completed_ % size_)});
    if (Measured()) (lane < 2 ? result_.spilled : result_.fetched) += BytesOf(t);
  }

  // The host waits for room, and nothing moves that would make any.
  bool EvictInNeed() {
    if (!host_waits_) return false;
    const auto& names = named_[host_ % size_];
    Bytes needed = 0;
    for (const uint32_t t : names) needed += tensors_[t].on_gpu ? 0 : BytesOf(t);
    std::vector<std::pair<int64_t, uint32_t>> order;
    for (uint32_t t = 0; t < tensors_.size(); ++t) {
      const Tensor& tensor = tensors_[t];
      if (!tensor.arrived || tensor.moving || tensor.last_use >= completed_ ||
          std::ranges::binary_search(names, t))
        continue;
      order.emplace_back(plan_ == nullptr ? tensor.last_use : -NextUse(t, host_), t);
    }
    std::ranges::sort(order);
    bool any = false;
    Bytes leaving = Free();
    for (const auto& [key, t] : order) {
      if (leaving >= needed) break;
      leaving += BytesOf(t);
      any = true;
      result_.in_need += Measured() ? 1 : 0;
      QueueFetch(t, NextUse(t, host_));
      tensors_[t].drop_after = tensors_[t].last_use;
      if (!tensors_[t].copy) copies_[static_cast<int>(tensors_[t].tier)].insert({-1, t});
    }
    if (plan_ == nullptr) fetches_.clear();  // on demand
    return any;
  }

  Nanos NextEvent() const {
    Nanos next = running_ ? kernel_end_ : kForever;
    for (const Transfer& lane : lanes_) {
      if (lane.active) next = std::min(next, lane.end);
    }
    return next;
  }
  void Advance(Nanos to) {
    now_ = to;
    if (running_ && kernel_end_ == now_) {
      running_ = false;
      ++completed_;
      if (completed_ % size_ == 0) ends_.push_back(now_);
      FreeDead();
    }
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (!lanes_[i].active || lanes_[i].end != now_) continue;
      lanes_[i].active = false;
      Tensor& tensor = tensors_[lanes_[i].tensor];
      tensor.moving = false;
      if (i >= 2) {
        tensor.arrived = true;
      } else {
        tensor.copy = true;
      }
      // A launch that was let go before the content arrived, or while it was copied, may write it.
      for (int64_t k = completed_; k < host_; ++k) {
        if (std::ranges::binary_search(recorded_.workload.kernels[k % size_].outputs, lanes_[i].tensor))
          tensor.copy = false;
      }
    }
  }

  const RecordedWorkload& recorded_;
  const MigrationPlan* const plan_;
  const ReplayOptions& options_;
  const int64_t size_;
  const int64_t last_;
  std::vector<std::vector<uint32_t>> named_;
  const Lifetimes lifetimes_;
  std::vector<Tensor> tensors_;

  Nanos now_ = 0;
  int64_t host_ = 0, completed_ = 0, steps_seen_ = 0;
  bool running_ = false, host_waits_ = false;
  Nanos kernel_end_ = 0;
  Bytes used_ = 0;
  std::array<Transfer, 4> lanes_;
  std::array<std::set<std::pair<int64_t, uint32_t>>, 2> copies_;
  std::set<std::pair<int64_t, uint32_t>> fetches_;
  std::vector<uint32_t> urgent_;
  std::vector<std::pair<int64_t, Bytes>> ahead_;
  std::vector<Nanos> ends_;
  Replay result_;
};

}  // namespace

Replay ReplayPlan(const RecordedWorkload& recorded, const MigrationPlan* plan, const ReplayOptions& options) {
  return Job(recorded, plan, options).Run();
}

}  // namespace spillway::policy
