#include "tests/policy/planner/plan_replay.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "policy/model/lifetimes.h"
#include "policy/model/plan_cursor.h"

namespace spillway::policy {
namespace {

constexpr Nanos kForever = std::numeric_limits<Nanos>::max();
constexpr int64_t kNotYet = -1, kStays = -2;

class Job final : private PlanMover {
 public:
  Job(const RecordedWorkload& recorded, const MigrationPlan* plan, const ReplayOptions& options)
      : recorded_(recorded),
        options_(options),
        size_(static_cast<int64_t>(recorded.workload.kernels.size())),
        last_(size_ * options.iterations),
        named_(recorded.workload.kernels.size()),
        lifetimes_(FindLifetimes(recorded.workload)),
        tensors_(recorded.workload.tensors.size()),
        cursor_(this) {
    for (int64_t k = 0; k < size_; ++k) {
      const WorkloadKernel& kernel = recorded.workload.kernels[k];
      std::ranges::set_union(kernel.inputs, kernel.outputs, std::back_inserter(named_[k]));
    }
    // What lives at the start lies on the host, as after a start on demand.
    for (uint32_t t = 0; t < tensors_.size(); ++t) {
      if (!lifetimes_.live_at_start[t]) continue;
      tensors_[t].live = tensors_[t].copy = true;
      current_[BlockOf(t)] = t;
    }
    for (uint32_t k = 0; k < size_; ++k)
      ahead_.push_back(1 + (plan == nullptr ? RunAhead().launches : plan->LaunchesAhead(k)));
    if (plan == nullptr) return;
    auto from_zero = std::make_shared<MigrationPlan>(*plan);
    from_zero->start = 0;
    cursor_.Reset(std::move(from_zero), 0);
  }

  Replay Run() {
    while (completed_ < last_) {
      while (Go()) {
      }
      const Nanos next = NextEvent();
      if (next == kForever) {
        result_.stuck = true;
        return result_;
      }
      Advance(next);
    }
    result_.iteration = (ends_.back() - ends_[options_.iterations - 3]) / 2;
    result_.fetched /= 2;
    result_.spilled /= 2;
    return result_;
  }

 private:
  struct Tensor {
    bool live = false;     // allocated and used, not freed
    bool on_gpu = false;   // takes memory there; its content may be on the way
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
  void TakeMemory(uint32_t t) {
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
    const int64_t iteration_start = from / size_ * size_;
    const auto next = std::ranges::lower_bound(uses, static_cast<uint32_t>(from % size_));
    return next != uses.end() ? iteration_start + *next : iteration_start + size_ + uses.front();
  }

  // ---- What may start now. True when something did.
  bool Go() {
    bool any = StartKernel();
    any |= Poll(/*memory_wanted=*/true);  // what leaves, before the host asks for memory
    any |= Drops();
    any |= HostLaunches();
    any |= EvictInNeed();
    any |= StartLeaving();
    any |= StartUrgent();
    any |= Poll(host_waits_);
    return any;
  }
  bool Poll(bool memory_wanted) { return cursor_.Poll(static_cast<LaunchIndex>(completed_), memory_wanted); }

  // ---- What the cursor sees and asks for.
  PlanBlock BlockOf(uint32_t t) const { return static_cast<PlanBlock>(recorded_.blocks[t]); }
  PlanBlockView ViewOf(uint32_t t) const {
    const Tensor& tensor = tensors_[t];
    PlanBlockView view;
    view.live = tensor.live;
    view.tier = tensor.tier;
    view.bytes = BytesOf(t);
    view.copy_bytes = 0;  // launches that read take no copy back: any idle interval will do
    view.free_bytes = Free();
    view.used = static_cast<LaunchIndex>(tensor.last_use + 1);
    view.copied = tensor.copy || tensor.moving;
    if (tensor.on_gpu && tensor.arrived) {
      view.place = PlanBlockView::Place::kOnGpu;
      view.may_leave = tensor.live && tensor.drop_after == kStays;
      const int tier = static_cast<int>(tensor.tier);
      view.may_copy = !tensor.moving && !queues_[tier].active && leaving_[tier].empty() && !WillBeWritten(t);
    } else if (tensor.on_gpu) {
      view.place = PlanBlockView::Place::kArriving;
    } else if (tensor.live && tensor.copy) {
      view.place = PlanBlockView::Place::kAway;
      view.may_return = !tensor.moving;
    }
    return view;
  }
  bool Visit(PlanBlock block, PlanTier tier,
             absl::FunctionRef<PlanMove(const PlanBlockView&)> decide) override {
    const auto found = current_.find(block);
    if (found == current_.end()) return decide(PlanBlockView()) != PlanMove::kNothing;
    const uint32_t t = found->second;
    Tensor& tensor = tensors_[t];  // its tier is the plan's from here on
    const PlanTier before = tensor.tier;
    if (tensor.on_gpu && !tensor.copy && !tensor.moving) tensor.tier = tier;
    switch (decide(ViewOf(t))) {
      case PlanMove::kNothing: tensor.tier = before; return false;
      case PlanMove::kEvict: Leave(t, tensor.last_use); return true;
      case PlanMove::kCopyOut:
        if (!tensor.copy) StartTransfer(t, /*in=*/false);
        return tensor.moving;
      case PlanMove::kFetch:
        TakeMemory(t);
        StartTransfer(t, /*in=*/true);
        return true;
    }
    return false;
  }
  bool Completed(LaunchIndex launch) override { return launch < static_cast<LaunchIndex>(completed_); }
  LaunchIndex Launched() const override { return static_cast<LaunchIndex>(host_); }
  bool IsBusy(PlanTier tier, size_t, Bytes) const override {
    return queues_[2 + static_cast<int>(tier)].active;
  }
  double RateOut(PlanTier tier) const override {
    return tier == PlanTier::kHost ? options_.machine.pcie_out : options_.machine.ssd_write;
  }
  double RateIn(PlanTier tier) const {
    return tier == PlanTier::kHost ? options_.machine.pcie_in : options_.machine.ssd_read;
  }

  // Leaves when a copy is there, which is wanted by launch `wanted`, unless the host uses it again before.
  void Leave(uint32_t t, int64_t wanted) {
    tensors_[t].drop_after = tensors_[t].last_use;
    if (tensors_[t].copy || tensors_[t].moving) return;
    leaving_[static_cast<int>(tensors_[t].tier)].insert({wanted, t});
  }

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

  // Launches until the host is too far ahead or must wait for memory.
  bool HostLaunches() {
    host_waits_ = false;
    bool any = false;
    while (host_ < last_ && host_ - completed_ < static_cast<int64_t>(ahead_[host_ % size_])) {
      FreeDead();
      host_waits_ = MissingBytes() > Free();
      if (host_waits_) break;
      for (const uint32_t t : named_[host_ % size_]) Use(t);
      ++host_;
      any = true;
    }
    return any;
  }
  Bytes MissingBytes() const {
    Bytes missing = 0;
    for (const uint32_t t : named_[host_ % size_]) missing += tensors_[t].on_gpu ? 0 : BytesOf(t);
    return missing;
  }
  void Use(uint32_t t) {
    Tensor& tensor = tensors_[t];
    current_[BlockOf(t)] = t;
    const bool was_live = std::exchange(tensor.live, true);
    if (!tensor.on_gpu) {
      TakeMemory(t);
      if (was_live) {
        urgent_.push_back(t);
        result_.faults += Measured() ? 1 : 0;
      } else {
        tensor.arrived = true;
      }
    }
    tensor.last_use = host_;
    tensor.drop_after = kStays;
    if (tensor.arrived && Names(recorded_.workload.kernels[host_ % size_].outputs, t)) tensor.copy = false;
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

  // ---- Transfers. Copy queues: out by tier, in by tier.
  // By a launch that the host has let go, the running one included: a copy would be worthless.
  bool WillBeWritten(uint32_t t) const {
    for (int64_t k = completed_; k < host_; ++k) {
      if (Names(recorded_.workload.kernels[k % size_].outputs, t)) return true;
    }
    return false;
  }
  bool StartLeaving() {
    bool any = false;
    for (const int tier : {0, 1}) {
      auto& queue = leaving_[tier];
      while (!queue.empty() && !queues_[tier].active) {
        const uint32_t t = queue.extract(queue.begin()).value().second;
        const Tensor& tensor = tensors_[t];
        if (!tensor.live || !tensor.arrived || tensor.copy || tensor.moving || tensor.drop_after == kStays)
          continue;
        StartTransfer(t, /*in=*/false);
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
      if (queues_[2 + tier].active || tensors_[*it].moving) {
        ++it;
        continue;
      }
      StartTransfer(*it, /*in=*/true);
      it = urgent_.erase(it);
      any = true;
    }
    return any;
  }

  void StartTransfer(uint32_t t, bool in) {
    Tensor& tensor = tensors_[t];
    tensor.moving = true;
    const double rate = in ? RateIn(tensor.tier) : RateOut(tensor.tier);
    const Nanos time = static_cast<Nanos>(static_cast<double>(BytesOf(t)) / rate * 1e9);
    queues_[(in ? 2 : 0) + static_cast<int>(tensor.tier)] = {true, t, now_ + std::max<Nanos>(1, time)};
    if (in && completed_ >= last_ - size_)
      result_.last_fetches.push_back({t, static_cast<uint32_t>(completed_ % size_)});
    if (Measured()) (in ? result_.fetched : result_.spilled) += BytesOf(t);
  }

  // The host waits for memory.
  bool EvictInNeed() {
    if (!host_waits_) return false;
    const Bytes needed = MissingBytes();
    std::vector<std::pair<int64_t, uint32_t>> order;
    Bytes leaving = Free();
    for (uint32_t t = 0; t < tensors_.size(); ++t) {
      const Tensor& tensor = tensors_[t];
      if (tensor.on_gpu && tensor.drop_after != kStays) {
        leaving += BytesOf(t);
      } else if (tensor.arrived && !tensor.moving && tensor.last_use < completed_ &&
                 !std::ranges::binary_search(named_[host_ % size_], t)) {
        order.emplace_back(!cursor_.active() ? tensor.last_use : -NextUse(t, host_), t);
      }
    }
    std::ranges::sort(order);
    const Bytes before = leaving;
    for (const auto& [key, t] : order) {
      if (leaving >= needed) break;
      leaving += BytesOf(t);
      result_.in_need += Measured() ? 1 : 0;
      cursor_.NoteUnplanned(BlockOf(t), BytesOf(t), static_cast<LaunchIndex>(completed_));
      Leave(t, -1);
    }
    return leaving != before;
  }

  Nanos NextEvent() const {
    Nanos next = running_ ? kernel_end_ : kForever;
    for (const Transfer& queue : queues_) {
      if (queue.active) next = std::min(next, queue.end);
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
    for (size_t i = 0; i < queues_.size(); ++i) {
      if (!queues_[i].active || queues_[i].end != now_) continue;
      queues_[i].active = false;
      Tensor& tensor = tensors_[queues_[i].tensor];
      tensor.moving = false;
      (i >= 2 ? tensor.arrived : tensor.copy) = true;
      // A launch that was let go before the content arrived, or while it was copied, may write it.
      if (WillBeWritten(queues_[i].tensor)) tensor.copy = false;
    }
  }

  const RecordedWorkload& recorded_;
  const ReplayOptions& options_;
  const int64_t size_;
  const int64_t last_;
  std::vector<std::vector<uint32_t>> named_;
  std::vector<uint32_t> ahead_;  // by position: launches that may be on their way, with the one that goes
  const Lifetimes lifetimes_;
  std::vector<Tensor> tensors_;

  Nanos now_ = 0;
  int64_t host_ = 0, completed_ = 0;
  bool running_ = false, host_waits_ = false;
  Nanos kernel_end_ = 0;
  Bytes used_ = 0;
  std::array<Transfer, 4> queues_;
  // By the launch by which they are wanted: tensors to copy out before they leave.
  std::array<std::set<std::pair<int64_t, uint32_t>>, 2> leaving_;
  std::vector<uint32_t> urgent_;  // that the host has named while they were away
  // The tensor that a block is, as far as the host has come.
  std::unordered_map<PlanBlock, uint32_t> current_;
  std::vector<Nanos> ends_;
  PlanCursor cursor_;
  Replay result_;
};

}  // namespace

Replay ReplayPlan(const RecordedWorkload& recorded, const MigrationPlan* plan, const ReplayOptions& options) {
  return Job(recorded, plan, options).Run();
}

}  // namespace spillway::policy
