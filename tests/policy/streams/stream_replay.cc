#include "tests/policy/streams/stream_replay.h"

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "policy/model/plan_cursor.h"
#include "policy/simulator/execution_stats.h"
#include "policy/simulator/machine_blocks.h"
#include "tests/policy/streams/stream_follower.h"

namespace spillway::policy {
namespace {

constexpr Nanos kForever = std::numeric_limits<Nanos>::max();

std::vector<Bytes> SizesOf(const Stream& stream) {
  std::vector<Bytes> sizes;
  for (const auto& [block, bytes] : stream.sizes) {
    sizes.resize(std::max(sizes.size(), size_t{static_cast<PlanBlock>(block)} + 1), 0);
    sizes[static_cast<PlanBlock>(block)] = bytes;
  }
  return sizes;
}

class Job final : private PlanMover {
 public:
  Job(const Stream& stream, const StreamReplayOptions& options)
      : stream_(stream),
        options_(options),
        follower_(stream, options.machine, options.launch),
        last_(static_cast<int64_t>(stream.MeasuredTo())),
        named_(stream.trace.end()),
        writes_(stream.trace.end()),
        metrics_(stream.trace.end(), execution_),
        blocks_(SizesOf(stream), options.machine, &metrics_),
        cursor_(this) {
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
        named_[index].insert(static_cast<PlanBlock>(block));
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
      blocks_.Arrange(now_);
      const Nanos next = blocks_.NextEvent(running_ ? kernel_end_ : kForever);
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
  // By a plan that the job follows.
  bool Planned() const { return cursor_.active() && !follower_.plan()->hints; }
  // How many launches may be uncompleted when another goes.
  int64_t MostAhead() const {
    const RunAhead ahead = Planned() ? follower_.plan()->run_ahead : RunAhead();
    return std::max<int64_t>(ahead.launches, (ahead.nanos + options_.launch - 1) / options_.launch);
  }
  Bytes Reserve() const { return options_.machine.gpu_bytes / 16; }
  const std::set<PlanBlock>& NamedBy(int64_t launch) const { return named_[static_cast<size_t>(launch)]; }

  // ---- What may start now. True when something did.
  bool Go() {
    bool any = StartKernel();
    any |= Poll(/*memory_wanted=*/true);  // what leaves, before the host asks for memory
    any |= LetGo();
    any |= EvictInNeed();
    any |= KeepReserve();
    any |= blocks_.Start(now_);
    any |= Poll(host_waits_);
    return any;
  }
  bool Poll(bool memory_wanted) { return cursor_.Poll(static_cast<LaunchIndex>(completed_), memory_wanted); }

  bool StartKernel() {
    if (running_ || completed_ >= host_) return false;
    for (const PlanBlock id : NamedBy(completed_)) {
      if (!blocks_.at(id).arrived) return false;
    }
    for (const PlanBlock id : writes_[static_cast<size_t>(completed_)]) blocks_.Overwritten(id);
    running_ = true;
    kernel_end_ = now_ + options_.launch;
    return true;
  }

  // The host lets launches go until it is too far ahead or must wait for memory.
  bool LetGo() {
    host_waits_ = false;
    bool any = false;
    while (host_ < last_ && host_ - completed_ <= MostAhead()) {
      for (; event_ != stream_.trace.events().end() && event_->before <= static_cast<LaunchIndex>(host_);
           ++event_)
        if (!event_->allocated()) blocks_.Free(static_cast<PlanBlock>(event_->block));
      blocks_.ReleaseDead(completed_);
      host_waits_ = MissingBytes() > blocks_.free();
      if (host_waits_) break;
      for (const PlanBlock id : NamedBy(host_))
        blocks_.Use(id, host_, writes_[static_cast<size_t>(host_)].contains(id));
      ++host_;
      if (options_.plans && follower_.Add(static_cast<LaunchIndex>(host_ - 1)))
        cursor_.Reset(follower_.plan(), static_cast<LaunchIndex>(completed_));
      any = true;
    }
    return any;
  }
  Bytes MissingBytes() const {
    Bytes missing = 0;
    for (const PlanBlock id : NamedBy(host_)) missing += blocks_.at(id).on_gpu ? 0 : blocks_.BytesOf(id);
    return missing;
  }

  // The host waits for memory.
  bool EvictInNeed() {
    if (!host_waits_) return false;
    pressure_ = true;
    return Evict(MissingBytes());
  }
  // Without a plan a sixteenth of the memory is kept free, once some was missing.
  bool KeepReserve() { return pressure_ && !Planned() && host_ < last_ && Evict(Reserve()); }
  // Has blocks leave until so many bytes are free, or will be. True when one more leaves.
  bool Evict(Bytes wanted) {
    Bytes coming = blocks_.free() + blocks_.leaving();
    std::vector<std::pair<LaunchIndex, PlanBlock>> order;
    for (const PlanBlock id : blocks_.on_gpu()) {
      const MachineBlocks::Block& block = blocks_.at(id);
      if (!blocks_.ViewOf(id, completed_).may_leave || block.last_use >= completed_ ||
          NamedBy(host_).contains(id))
        continue;
      const LaunchIndex next = cursor_.NextUse(id, static_cast<LaunchIndex>(host_));
      order.emplace_back(Planned() ? kNever - next : static_cast<LaunchIndex>(block.last_use + 1), id);
    }
    std::ranges::sort(order);
    const Bytes before = coming;
    for (const auto& [key, id] : order) {
      if (coming >= wanted) break;
      coming += blocks_.BytesOf(id);
      cursor_.RecordUnplanned(id, blocks_.BytesOf(id), static_cast<LaunchIndex>(completed_));
      blocks_.Leave(id, PlanTier::kHost, MachineBlocks::kNotYet);
    }
    return coming != before;
  }

  // ---- What the cursor sees and asks for.
  bool Visit(PlanBlock id, PlanTier, absl::FunctionRef<PlanMove(const PlanBlockView&)> decide) override {
    PlanBlockView view = blocks_.ViewOf(id, completed_);
    if (!Planned()) view.free_bytes -= std::min(view.free_bytes, Reserve());
    return blocks_.Move(decide(view), id, PlanTier::kHost);
  }
  bool Completed(LaunchIndex launch) override { return launch < static_cast<LaunchIndex>(completed_); }
  LaunchIndex Launched() const override { return static_cast<LaunchIndex>(host_); }
  bool IsBusy(PlanTier tier, size_t, Bytes) const override { return blocks_.Busy(tier); }
  double RateOut(PlanTier tier) const override { return blocks_.RateOut(tier); }

  void Advance(Nanos to) {
    now_ = to;
    if (running_ && kernel_end_ == now_) {
      running_ = false;
      ++completed_;
      if (completed_ == static_cast<int64_t>(stream_.MeasuredFrom())) result_.time = -now_;
    }
    blocks_.Advance(now_, /*iteration=*/0);
    blocks_.ReleaseDead(completed_);
  }

  const Stream& stream_;
  const StreamReplayOptions& options_;
  StreamFollower follower_;
  const int64_t last_;
  std::vector<std::set<PlanBlock>> named_, writes_;  // by launch
  std::span<const BlockEvent>::iterator event_;      // the next that the host comes to
  const ExecutionOptions execution_ = {.iterations = 1};
  ExecutionStats metrics_;  // of which nothing is taken
  MachineBlocks blocks_;
  Nanos now_ = 0;
  int64_t host_ = 0, completed_ = 0;
  bool running_ = false, host_waits_ = false;
  bool pressure_ = false;  // memory was missing
  Nanos kernel_end_ = 0;
  PlanCursor cursor_;
  StreamReplay result_;
};

}  // namespace

StreamReplay ReplayStream(const Stream& stream, const StreamReplayOptions& options) {
  return Job(stream, options).Run();
}

}  // namespace spillway::policy
