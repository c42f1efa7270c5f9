#include "tests/policy/streams/stream_replay.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "policy/model/plan_cursor.h"
#include "tests/policy/streams/stream_follower.h"

namespace spillway::policy {
namespace {

constexpr Nanos kForever = std::numeric_limits<Nanos>::max();
constexpr int64_t kNotYet = -1, kStays = -2;

class Job final : private PlanMover {
 public:
  Job(const Stream& stream, const StreamReplayOptions& options)
      : stream_(stream),
        options_(options),
        follower_(stream, options.machine, options.launch),
        last_(static_cast<int64_t>(stream.MeasuredTo())),
        writes_(stream.trace.end()),
        cursor_(this) {
    for (const auto& [block, bytes] : stream.sizes) blocks_[static_cast<PlanBlock>(block)].bytes = bytes;
    std::set<TraceBlock> fresh;
    auto event = stream.trace.events().begin();
    for (LaunchIndex index = 0; index < stream.trace.end(); ++index) {
      for (; event != stream.trace.events().end() && event->before == index; ++event) {
        if (event->allocated()) fresh.insert(event->block);
      }
      const LaunchRecord launch = stream.trace.at(index);
      const LaunchForm form{launch.tag, static_cast<uint32_t>(launch.blocks.size())};
      for (uint32_t operand = 0; operand < form.blocks; ++operand) {
        const TraceBlock block = launch.blocks[operand];
        if (fresh.erase(block) > 0 || stream.facts.Of(form, operand) != Writes::kNo)
          writes_[index].insert(static_cast<PlanBlock>(block));
      }
    }
    event_ = stream.trace.events().begin();
  }

  StreamReplay Run() {
    while (completed_ < last_) {
      while (Go()) {
      }
      const Nanos next = NextEvent();
      if (next == kForever) {
        result_.stuck = true;
        break;
      }
      Advance(next);
    }
    result_.time += now_;
    result_.ideal = options_.launch * (last_ - static_cast<int64_t>(stream_.MeasuredFrom()));
    result_.departures = follower_.counts().left;
    return result_;
  }

 private:
  struct Block {
    Bytes bytes = 0;
    bool live = false;     // handed out and used
    bool freed = false;    // handed out no more; the GPU may not be through with it
    bool on_gpu = false;   // takes memory there; its content may be on the way
    bool arrived = false;  // the content is there
    bool copy = false;     // good content on the host
    bool moving = false;
    int64_t last_use = kNotYet;   // as the host has launched
    int64_t drop_after = kStays;  // leaves when a copy is there, if no launch after this one uses it
  };
  struct Transfer {
    bool active = false;
    PlanBlock block = 0;
    Nanos end = 0;
  };

  // By a plan that the job follows.
  bool Planned() const { return cursor_.active() && !follower_.plan()->hints; }
  // How many launches may be uncompleted when another goes.
  int64_t MostAhead() const {
    const RunAhead ahead = Planned() ? follower_.plan()->run_ahead : RunAhead();
    return std::max<int64_t>(ahead.launches, (ahead.nanos + options_.launch - 1) / options_.launch);
  }
  Bytes Reserve() const { return options_.machine.gpu_bytes / 16; }
  Bytes Free() const { return options_.machine.gpu_bytes - used_; }
  bool Measured() const { return completed_ >= static_cast<int64_t>(stream_.MeasuredFrom()); }
  std::span<const TraceBlock> NamesOf(int64_t launch) const {
    return stream_.trace.at(static_cast<LaunchIndex>(launch)).blocks;
  }
  Block& At(TraceBlock block) { return blocks_.at(static_cast<PlanBlock>(block)); }
  void TakeMemory(Block* block) {
    block->on_gpu = true;
    used_ += block->bytes;
  }
  void Release(Block* block) {
    if (std::exchange(block->on_gpu, false)) used_ -= block->bytes;
    block->arrived = false;
  }

  // ---- What may start now. True when something did.
  bool Go() {
    bool any = StartKernel();
    any |= Poll(/*memory_wanted=*/true);  // what leaves, before the host asks for memory
    any |= Drops();
    any |= HostLaunches();
    any |= EvictInNeed();
    any |= KeepReserve();
    any |= StartLeaving();
    any |= StartUrgent();
    any |= Poll(host_waits_);
    return any;
  }
  bool Poll(bool memory_wanted) { return cursor_.Poll(static_cast<LaunchIndex>(completed_), memory_wanted); }

  // ---- What the cursor sees and asks for.
  PlanBlockView ViewOf(PlanBlock id, const Block& block) const {
    PlanBlockView view;
    view.live = block.live;
    view.bytes = block.bytes;
    view.copy_bytes = 0;  // launches that read take no copy back: any idle interval will do
    view.free_bytes = Free();
    if (!Planned()) view.free_bytes -= std::min(view.free_bytes, Reserve());
    view.used = static_cast<LaunchIndex>(block.last_use + 1);
    view.copied = block.copy || block.moving;
    if (block.on_gpu && block.arrived) {
      view.place = PlanBlockView::Place::kOnGpu;
      view.may_leave = block.live && block.drop_after == kStays;
      view.may_copy = !block.moving && !out_.active && leaving_.empty() && !WillBeWritten(id);
    } else if (block.on_gpu) {
      view.place = PlanBlockView::Place::kArriving;
    } else if (block.live && block.copy) {
      view.place = PlanBlockView::Place::kAway;
      view.may_return = !block.moving;
    }
    return view;
  }
  bool Visit(PlanBlock id, PlanTier, absl::FunctionRef<PlanMove(const PlanBlockView&)> decide) override {
    Block& block = blocks_.at(id);
    switch (decide(ViewOf(id, block))) {
      case PlanMove::kNothing: return false;
      case PlanMove::kEvict: Leave(id, block.last_use); return true;
      case PlanMove::kCopyOut:
        if (!block.copy) StartTransfer(id, /*in=*/false);
        return block.moving;
      case PlanMove::kFetch:
        TakeMemory(&block);
        StartTransfer(id, /*in=*/true);
        return true;
    }
    return false;
  }
  bool Completed(LaunchIndex launch) override { return launch < static_cast<LaunchIndex>(completed_); }
  LaunchIndex Launched() const override { return static_cast<LaunchIndex>(host_); }
  bool IsBusy(PlanTier, size_t, Bytes) const override { return in_.active; }
  double RateOut(PlanTier) const override { return options_.machine.pcie_out; }

  // Leaves when a copy is there, which is wanted by launch `wanted`, unless the host uses it again before.
  void Leave(PlanBlock id, int64_t wanted) {
    Block& block = blocks_.at(id);
    block.drop_after = block.last_use;
    if (!block.copy && !block.moving) leaving_.insert({wanted, id});
  }

  bool Drops() {
    bool any = false;
    for (auto& [id, block] : blocks_) {
      if (block.drop_after == kStays) continue;
      if (!block.live || block.last_use > block.drop_after) {
        block.drop_after = kStays;  // used again by now
      } else if (block.copy && !block.moving && block.arrived && completed_ > block.last_use) {
        Release(&block);
        block.drop_after = kStays;
        any = true;
      }
    }
    return any;
  }

  // ---- The host: launches until it is too far ahead or must wait for memory.
  bool HostLaunches() {
    host_waits_ = false;
    bool any = false;
    while (host_ < last_ && host_ - completed_ <= MostAhead()) {
      AllocateAndFree();
      ReleaseFreed();
      if (MissingBytes() > Free()) {
        host_waits_ = true;
        break;
      }
      for (const TraceBlock block : NamesOf(host_)) Use(static_cast<PlanBlock>(block));
      ++host_;
      if (options_.plans && follower_.Add(static_cast<LaunchIndex>(host_ - 1)))
        cursor_.Reset(follower_.plan(), static_cast<LaunchIndex>(completed_));
      any = true;
    }
    return any;
  }
  // What the host does before its next launch.
  void AllocateAndFree() {
    for (; event_ != stream_.trace.events().end() && event_->before <= static_cast<LaunchIndex>(host_);
         ++event_) {
      Block& block = At(event_->block);
      block.freed = !event_->allocated();
      if (block.freed) continue;
      block.live = block.copy = false;  // what lies there is nobody's
      block.drop_after = kStays;
    }
  }
  Bytes MissingBytes() {
    Bytes missing = 0;
    std::set<TraceBlock> seen;
    for (const TraceBlock id : NamesOf(host_)) {
      if (!At(id).on_gpu && seen.insert(id).second) missing += At(id).bytes;
    }
    return missing;
  }
  void Use(PlanBlock id) {
    Block& block = blocks_.at(id);
    const bool was_live = std::exchange(block.live, true);
    if (!block.on_gpu) {
      TakeMemory(&block);
      if (was_live) {
        urgent_.push_back(id);
      } else {
        block.arrived = true;
      }
    }
    block.last_use = host_;
    block.drop_after = kStays;
    if (writes_[static_cast<size_t>(host_)].contains(id) && block.arrived) block.copy = false;
  }
  // Memory of freed blocks goes when the GPU is through with them.
  void ReleaseFreed() {
    for (auto& [id, block] : blocks_) {
      if (!block.freed || block.moving || completed_ <= block.last_use) continue;
      Release(&block);
      block.freed = block.live = block.copy = false;
      block.drop_after = kStays;
    }
  }

  bool StartKernel() {
    if (running_ || completed_ >= host_) return false;
    for (const TraceBlock id : NamesOf(completed_)) {
      if (!At(id).arrived) return false;
    }
    running_ = true;
    kernel_end_ = now_ + options_.launch;
    return true;
  }

  // ---- Transfers: one at a time in each direction.
  // By a launch that the host has let go, the running one included: a copy would be worthless.
  bool WillBeWritten(PlanBlock id) const {
    for (int64_t k = completed_; k < host_; ++k) {
      if (writes_[static_cast<size_t>(k)].contains(id)) return true;
    }
    return false;
  }
  bool StartLeaving() {
    bool any = false;
    while (!leaving_.empty() && !out_.active) {
      const PlanBlock id = leaving_.begin()->second;
      leaving_.erase(leaving_.begin());
      const Block& block = blocks_.at(id);
      if (!block.live || !block.arrived || block.copy || block.moving || block.drop_after == kStays) continue;
      StartTransfer(id, /*in=*/false);
      any = true;
    }
    return any;
  }
  // What the host has launched already.
  bool StartUrgent() {
    if (in_.active) return false;
    const auto next = std::ranges::find_if(urgent_, [this](PlanBlock id) { return !blocks_.at(id).moving; });
    if (next == urgent_.end()) return false;
    StartTransfer(*next, /*in=*/true);
    urgent_.erase(next);
    return true;
  }
  void StartTransfer(PlanBlock id, bool in) {
    Block& block = blocks_.at(id);
    block.moving = true;
    const double rate = in ? options_.machine.pcie_in : options_.machine.pcie_out;
    const auto time = static_cast<Nanos>(static_cast<double>(block.bytes) / rate * 1e9);
    const Transfer transfer = {true, id, now_ + std::max<Nanos>(1, time)};
    (in ? in_ : out_) = transfer;
    if (in && Measured()) result_.fetched += block.bytes;
  }

  // The host waits for memory.
  bool EvictInNeed() {
    if (!host_waits_) return false;
    pressure_ = true;
    return Evict(MissingBytes());
  }
  // Without a plan a sixteenth of the memory is kept free, once some was missing.
  bool KeepReserve() { return pressure_ && !Planned() && Evict(Reserve()); }
  // Has blocks leave until so many bytes are free, or will be. True when one more leaves.
  bool Evict(Bytes wanted) {
    Bytes coming = Free();
    std::vector<std::pair<LaunchIndex, PlanBlock>> order;
    const auto names = NamesOf(host_);
    for (const auto& [id, block] : blocks_) {
      const bool leaves = block.live && !block.freed && block.drop_after != kStays;
      if (block.on_gpu && leaves) coming += block.bytes;
      if (!block.live || block.freed || !block.arrived || block.moving || leaves ||
          block.last_use >= completed_ || std::ranges::find(names, TraceBlock{id}) != names.end())
        continue;
      const LaunchIndex next = cursor_.NextUse(id, static_cast<LaunchIndex>(host_));
      order.emplace_back(Planned() ? kNever - next : static_cast<LaunchIndex>(block.last_use + 1), id);
    }
    std::ranges::sort(order);
    const Bytes before = coming;
    for (const auto& [key, id] : order) {
      if (coming >= wanted) break;
      coming += blocks_.at(id).bytes;
      cursor_.NoteUnplanned(id, blocks_.at(id).bytes, static_cast<LaunchIndex>(completed_));
      Leave(id, kNotYet);
    }
    return coming != before;
  }

  // ---- Time.
  Nanos NextEvent() const {
    Nanos next = running_ ? kernel_end_ : kForever;
    for (const Transfer* queue : {&in_, &out_}) {
      if (queue->active) next = std::min(next, queue->end);
    }
    return next;
  }
  void Advance(Nanos to) {
    now_ = to;
    if (running_ && kernel_end_ == now_) {
      running_ = false;
      ++completed_;
      if (completed_ == static_cast<int64_t>(stream_.MeasuredFrom())) result_.time = -now_;
      ReleaseFreed();
    }
    for (Transfer* queue : {&out_, &in_}) {
      if (!queue->active || queue->end != now_) continue;
      queue->active = false;
      Block& block = blocks_.at(queue->block);
      block.moving = false;
      if (queue == &in_) {
        block.arrived = true;
      } else {
        block.copy = block.live;
      }
      // A launch that was let go before the content arrived, or while it was copied, may write it.
      if (WillBeWritten(queue->block)) block.copy = false;
    }
  }

  const Stream& stream_;
  const StreamReplayOptions& options_;
  StreamFollower follower_;
  const int64_t last_;
  std::vector<std::set<PlanBlock>> writes_;  // by launch
  std::map<PlanBlock, Block> blocks_;
  std::span<const BlockEvent>::iterator event_;  // the next that the host comes to

  Nanos now_ = 0;
  int64_t host_ = 0, completed_ = 0;
  bool running_ = false, host_waits_ = false;
  bool pressure_ = false;  // memory was missing
  Nanos kernel_end_ = 0;
  Bytes used_ = 0;
  Transfer in_, out_;
  std::set<std::pair<int64_t, PlanBlock>> leaving_;  // by the launch by which they are wanted
  std::vector<PlanBlock> urgent_;                    // that the host has named while they were away
  PlanCursor cursor_;
  StreamReplay result_;
};

}  // namespace

StreamReplay ReplayStream(const Stream& stream, const StreamReplayOptions& options) {
  return Job(stream, options).Run();
}

}  // namespace spillway::policy
