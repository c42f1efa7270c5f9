#include "policy/simulator/simulator.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "policy/model/headroom.h"
#include "policy/simulator/due_parts.h"
#include "policy/simulator/execution_stats.h"
#include "policy/simulator/part_state.h"
#include "policy/simulator/transfers.h"

namespace spillway::policy {
namespace {

constexpr Nanos kForever = std::numeric_limits<Nanos>::max();

Headroom HeadroomOf(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                    const TransferPlan& plan) {
  Headroom headroom(ExpectedBytes(workload, lifetimes, machine.piece_bytes, plan), machine.gpu_bytes, 0, 0);
  // The expected bytes are those of an iteration that repeats, so they lack tensors that the iteration before
  // has sent away. No iteration comes before the first one: the bytes are added back here, and PlaceTensors
  // decides which tensors are away at the start.
  const auto kernels = static_cast<uint32_t>(workload.kernels.size());
  for (const PlannedEviction& eviction : plan.evictions) {
    const IdleInterval& interval = lifetimes.intervals[eviction.interval];
    if (interval.before <= kernels) continue;
    const Bytes bytes = BytesOfPieces(workload.tensors[interval.tensor].bytes, machine.piece_bytes,
                                      eviction.first_piece, eviction.last_piece);
    headroom.Add(std::max(eviction.from, kernels) - kernels, interval.before - kernels,
                 static_cast<int64_t>(bytes));
  }
  return headroom;
}

std::optional<Headroom> HostHeadroomOf(const Workload& workload, const Lifetimes& lifetimes,
                                       const Machine& machine, const TransferPlan& plan) {
  if (!plan.promotes) return std::nullopt;
  return Headroom(AwayBytes(workload, lifetimes, machine.piece_bytes, plan, /*host_only=*/true),
                  machine.host_bytes, 0, 0);
}

// One execution: kernels one after another, and time. All that can start does; then time jumps to the next
// end of a kernel or copy. If nothing is under way and the next kernel cannot start, parts leave in need; if
// that does not help, the job cannot go on.
class Executor {
 public:
  Executor(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
           const TransferPlan& plan, const ExecutionOptions& options)
      : workload_(workload),
        lifetimes_(lifetimes),
        machine_(machine),
        options_(options),
        kernels_(workload.kernels.size()),
        place_{.last = kernels_ * options.iterations},
        state_(workload, machine.piece_bytes, options.move_bytes, CutsOf(workload, lifetimes, plan)),
        due_(MakeDueParts(workload, lifetimes, plan, state_)),
        metrics_(kernels_, options),
        transfers_(workload, machine, HeadroomOf(workload, lifetimes, machine, plan),
                   HostHeadroomOf(workload, lifetimes, machine, plan), options.prefetch, place_, &state_,
                   &metrics_),
        dying_(kernels_) {
    for (uint32_t t = 0; t < workload.tensors.size(); ++t) {
      if (lifetimes.last_live[t] != Lifetimes::kNoEnd) dying_[lifetimes.last_live[t]].push_back(t);
    }
    PlaceTensors();
  }

  absl::StatusOr<Execution> Run() {
    while (metrics_.iterations() < options_.iterations) {
      StartAll();
      Nanos next = NextEvent();
      if (next == kForever) {
        EvictInNeed();
        StartAll();
        next = NextEvent();
        if (next == kForever) return NoProgress();
      }
      Advance(next);
    }
    transfers_.Finish();
    return metrics_.Take(workload_.IdealTime(), state_.peak[0], state_.peak[1]);
  }

 private:
  using Kernel = WorkloadKernel;

  uint32_t KernelOf(uint64_t position) const { return static_cast<uint32_t>(position % kernels_); }
  const Kernel& Next() const { return workload_.kernels[KernelOf(place_.started)]; }

  // ---- The start. Tensors that live over an iteration's start are away if the plan has them away then. The
  // others are on the GPU, as far as they fit, in the order of their first use.
  void PlaceTensors() {
    std::vector<bool> placed(workload_.tensors.size(), false);
    for (const AwayAtStart& away : due_.away_at_start) {
      if (!placed[away.tensor]) transfers_.PlaceAway(away.tensor, away.tier, away.until, away.returns);
      placed[away.tensor] = true;
    }
    std::vector<uint32_t> rest;
    for (uint32_t t = 0; t < workload_.tensors.size(); ++t) {
      if (lifetimes_.live_at_start[t] && !placed[t]) rest.push_back(t);
    }
    const auto first_use = [this](uint32_t t) {
      return lifetimes_.uses[t].empty() ? place_.last : uint64_t{lifetimes_.uses[t].front()};
    };
    std::ranges::stable_sort(rest, {}, first_use);
    const Bytes first_kernel = state_.SpaceFor(workload_.kernels[0]);
    for (uint32_t t : rest) PlaceAtStart(t, first_kernel);
    for (const DueWrite& write : due_.first_writes) {
      if (state_.parts[write.part].valid[0]) transfers_.QueueWrite(write, 0, 0);
    }
  }
  void PlaceAtStart(uint32_t t, Bytes first_kernel) {
    TensorState& tensor = state_.tensors[t];
    const Bytes bytes = workload_.tensors[t].bytes;
    const std::vector<uint32_t>& uses = lifetimes_.uses[t];
    if (uses.empty()) return transfers_.PlaceAway(t, PlanTier::kHost, std::nullopt, false);
    if (state_.used[0] + bytes + first_kernel > machine_.gpu_bytes) {
      // It is away until its first use, or until it is freed if that comes first.
      const uint32_t end = lifetimes_.last_live[t];
      const uint32_t until = end < uses.front() ? end + 1 : uses.front();
      const bool returns = end >= until && Names(workload_.kernels[until].inputs, t);
      return transfers_.PlaceAway(t, PlanTier::kHost, until, returns);
    }
    tensor.live = true;
    for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) state_.Put(p, Place::kGpu);
    metrics_.Happened({ScheduleEvent::Kind::kInit, 0, t, 0, 0, Place::kGpu, Place::kGpu, 0, 0, 0});
  }

  // ---- One round: all that can start does.
  void StartAll() {
    transfers_.BeginRound();
    if (place_.Waiting()) {
      transfers_.StartReads();
      StartKernel();
    }
    transfers_.StartWrites();
    transfers_.StartReads();
    transfers_.EndRound();
  }

  // Whether a tensor that the next kernel overwrites or frees is on its way.
  bool NextIsBeingMoved() const {
    const auto moves = [this](uint32_t t) {
      return state_.tensors[t].moves_out + state_.tensors[t].moves_in != 0;
    };
    const auto leaves = [this](uint32_t t) { return state_.tensors[t].moves_out != 0; };
    return std::ranges::any_of(Next().outputs, moves) ||
           std::ranges::any_of(dying_[KernelOf(place_.started)], leaves);
  }

  void StartKernel() {
    const uint32_t k = KernelOf(place_.started);
    const Kernel& kernel = Next();
    if (!state_.InputsReady(kernel) || NextIsBeingMoved() || state_.SpaceFor(kernel) > transfers_.FreeOnGpu())
      return;
    state_.Take(Place::kGpu, kernel.workspace_bytes);
    for (const auto* ids : {&kernel.inputs, &kernel.outputs}) {
      for (uint32_t t : *ids) {
        TensorState& tensor = state_.tensors[t];
        const bool appears = !std::exchange(tensor.live, true);
        tensor.last_use = place_.started + 1;
        state_.TakeAllOnGpu(t);
        if (appears && ids == &kernel.inputs) state_.ValidateAllOnGpu(t);
        for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) state_.parts[p].drop_pending = false;
      }
    }
    stale_ = kernel.outputs;
    const Nanos duration = options_.durations.empty() ? kernel.duration : options_.durations[place_.started];
    place_.kernel_start = place_.now;
    kernel_end_ = place_.now + ToTicks(static_cast<double>(duration));
    place_.running = true;
    metrics_.Happened({ScheduleEvent::Kind::kKernel, static_cast<uint32_t>(place_.started / kernels_), k, 0,
                       0, Place::kGpu, Place::kGpu, place_.now, kernel_end_, 0});
    ++place_.started;
  }

  // ---- Time goes on.
  Nanos NextEvent() const { return transfers_.NextEvent(place_.running ? kernel_end_ : kForever); }

  void Advance(Nanos to) {
    if (place_.Waiting()) metrics_.Waited(place_.started, to - place_.now, transfers_.WaitOf(Next()));
    place_.now = to;
    // Copies that the kernel made stale are freed only now: among events at one time, moves start before
    // kernels.
    for (uint32_t t : std::exchange(stale_, {})) transfers_.FreeElsewhere(t);
    if (place_.running && kernel_end_ == place_.now) EndKernel();
    transfers_.EndMoves();
  }

  void EndKernel() {
    const uint64_t position = place_.started - 1;
    const uint32_t k = KernelOf(position);
    const Kernel& kernel = workload_.kernels[k];
    place_.running = false;
    state_.used[0] -= kernel.workspace_bytes;
    for (uint32_t t : kernel.outputs) {
      state_.ValidateAllOnGpu(t);
      ++state_.tensors[t].content;
    }
    for (uint32_t t : dying_[k]) {
      state_.FreeAll(t, Place::kGpu);
      transfers_.FreeElsewhere(t);
      state_.tensors[t].live = false;
      ++state_.tensors[t].content;
    }
    if (k + 1 == kernels_) {
      metrics_.IterationEnded(place_.now);
      transfers_.MoveTo(place_.started);
    }
    for (const DueWrite& write : due_.writes[k]) transfers_.QueueWrite(write, position, 0);
    for (const DueDrop& due : due_.drops[k]) transfers_.BeginEviction(due);
  }

  // ---- Eviction in need: the next kernel does not fit and nothing moves, so other parts leave outside of
  // the plan.
  void EvictInNeed() {
    const Bytes needed = state_.SpaceFor(Next()) + state_.MissingFor(Next());
    Bytes leaving = transfers_.FreeOnGpu();
    Bytes host = machine_.host_bytes - std::min(machine_.host_bytes, state_.used[1]);
    for (uint32_t p : VictimsInOrder()) {
      if (leaving >= needed) return;
      const ExecutionPart& part = state_.parts[p];
      leaving += part.bytes;
      metrics_.EvictedInNeed();
      const uint64_t until = NextUse(part.tensor, place_.started);
      const bool returns = until == NextNamed(part.tensor, place_.started) &&
                           Names(workload_.kernels[KernelOf(until)].inputs, part.tensor);
      const bool copied = PartState::ElsewhereValid(part);
      const bool to_host = host >= part.bytes;
      transfers_.LeaveInNeed(p, until, returns, to_host);
      if (!copied && to_host) host -= part.bytes;
    }
  }

  std::vector<uint32_t> VictimsInOrder() const {
    const Kernel& kernel = Next();
    std::vector<std::pair<uint64_t, uint32_t>> keyed;
    for (uint32_t t = 0; t < state_.tensors.size(); ++t) {
      const TensorState& tensor = state_.tensors[t];
      if (!tensor.live || tensor.parts_on_gpu == 0 || Names(kernel.inputs, t) || Names(kernel.outputs, t))
        continue;
      const uint64_t key =
          options_.victims == VictimOrder::kFarthestNextUse ? ~NextUse(t, place_.started) : tensor.last_use;
      for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) {
        if (state_.parts[p].valid[0] && !state_.parts[p].moving_out) keyed.emplace_back(key, p);
      }
    }
    std::ranges::sort(keyed);
    std::vector<uint32_t> order;
    order.reserve(keyed.size());
    for (const auto& [key, part] : keyed) order.push_back(part);
    return order;
  }

  // The next kernel that names the tensor, or the one before which it is freed if that comes first.
  uint64_t NextUse(uint32_t tensor, uint64_t from) const {
    const uint32_t end = lifetimes_.last_live[tensor];
    const uint64_t next = NextNamed(tensor, from);
    if (end == Lifetimes::kNoEnd || !state_.tensors[tensor].live) return next;
    return std::min(next, from + (end + kernels_ - KernelOf(from)) % kernels_ + 1);
  }

  uint64_t NextNamed(uint32_t tensor, uint64_t from) const {
    const std::vector<uint32_t>& uses = lifetimes_.uses[tensor];
    if (uses.empty()) return place_.last + 2 * kernels_;
    const uint64_t base = from - from % kernels_;
    const auto it = std::ranges::lower_bound(uses, KernelOf(from));
    return it == uses.end() ? base + kernels_ + uses.front() : base + *it;
  }

  absl::Status NoProgress() const {
    const Kernel& kernel = Next();
    return absl::ResourceExhaustedError(
        absl::StrCat("kernel ", KernelOf(place_.started), " (", kernel.name, ") needs ",
                     state_.SpaceFor(kernel) + state_.MissingFor(kernel), " bytes more on the GPU, of whose ",
                     machine_.gpu_bytes, " only ", transfers_.FreeOnGpu(),
                     " can be freed; its own tensors exceed the GPU's memory"));
  }

  const Workload& workload_;
  const Lifetimes& lifetimes_;
  const Machine& machine_;
  const ExecutionOptions& options_;
  const uint64_t kernels_;
  JobPlace place_;
  PartState state_;
  const DueParts due_;
  ExecutionStats metrics_;
  Transfers transfers_;
  std::vector<std::vector<uint32_t>> dying_;  // tensors by the kernel at whose end they are freed
  std::vector<uint32_t> stale_;               // tensors whose copies elsewhere the running kernel makes stale
  Nanos kernel_end_ = 0;
};

}  // namespace

absl::StatusOr<Execution> Execute(const Workload& workload, const Lifetimes& lifetimes,
                                  const Machine& machine, const TransferPlan& plan,
                                  const ExecutionOptions& options) {
  return Executor(workload, lifetimes, machine, plan, options).Run();
}

}  // namespace spillway::policy
