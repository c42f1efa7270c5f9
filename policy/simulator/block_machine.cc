#include "policy/simulator/block_machine.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "policy/model/plan_cursor.h"
#include "policy/simulator/execution_stats.h"
#include "policy/simulator/machine_blocks.h"

namespace spillway::policy {

namespace {

constexpr Nanos kNoEvent = std::numeric_limits<Nanos>::max();
constexpr uint32_t kNoTensor = ~uint32_t{0};

std::vector<Bytes> SizesOfTensors(const Workload& workload) {
  std::vector<Bytes> bytes;
  for (const WorkloadTensor& tensor : workload.tensors) bytes.push_back(tensor.bytes);
  return bytes;
}

}  // namespace

// One run: the host, the GPU's kernels, and time. Time jumps from one event (a kernel's or a transfer's end)
// to the next. At each event everything starts that may start, again and again until nothing does: a start
// may make another one possible.
class BlockMachineJob final : private PlanMover {
 public:
  BlockMachineJob(const BlockMachine& on, const Machine& machine, std::shared_ptr<const MigrationPlan> plan,
                  const ExecutionOptions& options)
      : on_(on),
        machine_(machine),
        workload_(on.recorded_.workload),
        size_(static_cast<int64_t>(workload_.kernels.size())),
        last_(size_ * options.iterations),
        metrics_(workload_.kernels.size(), options),
        blocks_(SizesOfTensors(workload_), machine, &metrics_),
        current_(on.most_blocks_, kNoTensor),
        cursor_(this) {
    for (uint32_t t = 0; t < workload_.tensors.size(); ++t) {
      if (!on.lifetimes_.live_at_start[t]) continue;
      blocks_.PlaceAway(t);
      current_[BlockOf(t)] = t;
    }
    for (uint32_t k = 0; k < size_; ++k)
      ahead_.push_back(1 + (plan == nullptr ? RunAhead().launches : plan->LaunchesAhead(k)));
    if (plan != nullptr && plan->start != 0) {
      auto from_zero = std::make_shared<MigrationPlan>(*plan);
      from_zero->start = 0;
      plan = std::move(from_zero);
    }
    cursor_.Reset(std::move(plan), 0);
  }

  absl::StatusOr<Execution> Run() {
    while (completed_ < last_) {
      while (Go()) {
      }
      blocks_.Arrange(now_);
      const Nanos next = blocks_.NextEvent(running_ ? kernel_end_ : kNoEvent);
      if (next == kNoEvent) return NoProgress();
      Advance(next);
    }
    return metrics_.Take(workload_.IdealTime(), blocks_.peak(), blocks_.peak_host());
  }

 private:
  using Block = MachineBlocks::Block;

  PlanBlock BlockOf(uint32_t tensor) const { return static_cast<PlanBlock>(on_.recorded_.blocks[tensor]); }
  size_t PositionOf(int64_t launch) const { return static_cast<size_t>(launch % size_); }
  const std::vector<uint32_t>& NamedBy(int64_t launch) const { return on_.named_[PositionOf(launch)]; }
  const WorkloadKernel& KernelOf(int64_t launch) const { return workload_.kernels[PositionOf(launch)]; }

  // ---- Starts. Each function starts what it can and returns whether it started anything.
  bool Go() {
    bool any = StartKernel();
    any |= Poll(/*memory_wanted=*/true);  // evictions go first, so that the host finds their memory
    any |= LetGo();
    any |= EvictInNeed();
    any |= blocks_.Start(now_);
    any |= Poll(host_waits_);
    return any;
  }
  bool Poll(bool memory_wanted) { return cursor_.Poll(static_cast<LaunchIndex>(completed_), memory_wanted); }

  bool StartKernel() {
    if (running_ || completed_ >= host_ || Arriving(nullptr)) return false;
    const WorkloadKernel& kernel = KernelOf(completed_);
    for (const uint32_t t : kernel.outputs) blocks_.Overwritten(t);
    running_ = true;
    kernel_end_ = now_ + ToTicks(static_cast<double>(kernel.duration));
    metrics_.Happened({ScheduleEvent::Kind::kKernel, Iteration(), static_cast<uint32_t>(completed_ % size_),
                       0, 0, Place::kGpu, Place::kGpu, now_, kernel_end_, 0});
    return true;
  }
  uint32_t Iteration() const { return static_cast<uint32_t>(completed_ / size_); }
  // Whether bytes of the next kernel's blocks are on their way; sets *from_disk if some come from the disk.
  bool Arriving(bool* from_disk) const {
    bool arriving = false;
    for (const uint32_t t : NamedBy(completed_)) {
      const Block& block = blocks_.at(t);
      if (block.arrived || !block.on_gpu) continue;
      arriving = true;
      if (from_disk == nullptr) return true;
      *from_disk |= block.tier == PlanTier::kDisk;
    }
    return arriving;
  }

  // The host lets launches go until it is too far ahead or must wait for memory.
  bool LetGo() {
    host_waits_ = false;
    bool any = false;
    while (host_ < last_ && host_ - completed_ < int64_t{ahead_[PositionOf(host_)]}) {
      blocks_.ReleaseDead(completed_);
      host_waits_ = MissingBytes() > blocks_.free();
      if (host_waits_) break;
      const std::vector<uint32_t>& outputs = KernelOf(host_).outputs;
      for (const uint32_t t : NamedBy(host_)) {
        current_[BlockOf(t)] = t;
        blocks_.Use(t, host_, Names(outputs, t));
      }
      for (const uint32_t t : on_.freed_[PositionOf(host_)]) blocks_.Free(t);
      ++host_;
      ++changes_;
      any = true;
    }
    return any;
  }
  Bytes MissingBytes() const {
    Bytes missing = 0;
    for (const uint32_t t : NamedBy(host_)) missing += blocks_.at(t).on_gpu ? 0 : blocks_.BytesOf(t);
    return missing;
  }

  // Evicts blocks when the host waits for memory that is not about to be free: those whose next use is last,
  // or the least recently used without a plan. The candidates are searched again only after a change
  // (changes_): the GPU has gone on, or a block has arrived that may leave.
  bool EvictInNeed() {
    if (!host_waits_) return false;
    const Bytes needed = MissingBytes();
    Bytes coming = blocks_.free() + blocks_.leaving();
    if (coming >= needed || scanned_at_ == changes_) return false;
    std::vector<std::pair<int64_t, uint32_t>> order;
    const std::vector<uint32_t>& named = NamedBy(host_);
    for (const uint32_t t : blocks_.on_gpu()) {
      const Block& block = blocks_.at(t);
      if (!block.arrived || block.leaving || block.dead || block.move != Block::Move::kNone ||
          block.last_use >= completed_ || std::ranges::binary_search(named, t))
        continue;
      order.emplace_back(cursor_.active() ? -NextUse(t) : block.last_use, t);
    }
    std::ranges::sort(order);
    scanned_at_ = changes_;
    for (const auto& [key, t] : order) {
      if (coming >= needed) break;
      coming += blocks_.BytesOf(t);
      ++changes_;
      metrics_.EvictedInNeed();
      cursor_.RecordUnplanned(BlockOf(t), blocks_.BytesOf(t), static_cast<LaunchIndex>(completed_));
      blocks_.Leave(t, blocks_.at(t).tier, MachineBlocks::kNotYet);
    }
    return scanned_at_ != changes_;
  }
  // The tensor's first use from the host's place on.
  int64_t NextUse(uint32_t tensor) const {
    const std::vector<uint32_t>& uses = on_.lifetimes_.uses[tensor];
    const int64_t iteration_start = host_ / size_ * size_;
    const auto next = std::ranges::lower_bound(uses, static_cast<uint32_t>(host_ % size_));
    return next != uses.end() ? iteration_start + *next : iteration_start + size_ + uses.front();
  }

  // ---- The cursor's view of blocks, and its moves.
  bool Visit(PlanBlock block, PlanTier tier,
             absl::FunctionRef<PlanMove(const PlanBlockView&)> decide) override {
    const uint32_t t = block < current_.size() ? current_[block] : kNoTensor;
    if (t == kNoTensor) return decide(PlanBlockView()) != PlanMove::kNothing;
    return blocks_.Move(decide(blocks_.ViewOf(t, completed_)), t, tier);
  }
  bool Completed(LaunchIndex launch) override { return launch < static_cast<LaunchIndex>(completed_); }
  LaunchIndex Launched() const override { return static_cast<LaunchIndex>(host_); }
  bool IsBusy(PlanTier tier, size_t, Bytes) const override {
    return blocks_.Busy(tier) || !blocks_.AnyAway(tier);
  }
  double RateOut(PlanTier tier) const override { return blocks_.RateOut(tier); }

  // ---- Time.
  void Advance(Nanos to) {
    if (!running_) Wait(to - now_);
    now_ = to;
    ++changes_;
    if (running_ && kernel_end_ == now_) {
      running_ = false;
      ++completed_;
      if (completed_ % size_ == 0) metrics_.IterationEnded(now_);
    }
    blocks_.Advance(now_, Iteration());
    blocks_.ReleaseDead(completed_);
  }
  void Wait(Nanos time) {
    ExecutionStats::Wait wait;
    wait.arriving = Arriving(&wait.reading);
    wait.writing = blocks_.WritesDisk();
    metrics_.Waited(static_cast<uint64_t>(completed_), time, wait);
  }
  absl::Status NoProgress() const {
    return absl::ResourceExhaustedError(absl::StrCat("launch ", host_ % size_, " lacks ", MissingBytes(),
                                                     " bytes on the GPU, of which ", blocks_.free(), " of ",
                                                     machine_.gpu_bytes, " are free, and nothing can leave"));
  }

  const BlockMachine& on_;
  const Machine& machine_;
  const Workload& workload_;
  const int64_t size_;
  const int64_t last_;
  ExecutionStats metrics_;
  MachineBlocks blocks_;
  std::vector<uint32_t> ahead_;    // by position: launches that may be uncompleted, with the one that goes
  std::vector<uint32_t> current_;  // by block: its tensor at the host's place
  Nanos now_ = 0;
  int64_t host_ = 0, completed_ = 0;
  bool running_ = false, host_waits_ = false;
  Nanos kernel_end_ = 0;
  // changes_ counts the changes to the facts that victims are chosen by. scanned_at_ is its value at the last
  // search for victims.
  uint64_t changes_ = 1, scanned_at_ = 0;
  PlanCursor cursor_;
};

BlockMachine::BlockMachine(const RecordedWorkload& recorded, const Lifetimes& lifetimes)
    : recorded_(recorded),
      lifetimes_(lifetimes),
      named_(recorded.workload.kernels.size()),
      freed_(recorded.workload.kernels.size()) {
  for (const TraceBlock block : recorded.blocks)
    most_blocks_ = std::max(most_blocks_, size_t{static_cast<PlanBlock>(block)} + 1);
  for (size_t k = 0; k < named_.size(); ++k) {
    const WorkloadKernel& kernel = recorded.workload.kernels[k];
    std::ranges::set_union(kernel.inputs, kernel.outputs, std::back_inserter(named_[k]));
  }
  for (uint32_t t = 0; t < recorded.workload.tensors.size(); ++t) {
    if (lifetimes.last_live[t] != Lifetimes::kNoEnd) freed_[lifetimes.last_live[t]].push_back(t);
  }
}

absl::StatusOr<Execution> BlockMachine::Run(const Machine& machine, std::shared_ptr<const MigrationPlan> plan,
                                            const ExecutionOptions& options) const {
  return BlockMachineJob(*this, machine, std::move(plan), options).Run();
}

}  // namespace spillway::policy
