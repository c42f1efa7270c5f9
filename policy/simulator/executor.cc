#include "policy/simulator/executor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace spillway::policy {
namespace {

constexpr Nanos kForever = std::numeric_limits<Nanos>::max();

bool Contains(const std::vector<uint32_t>& ascending, uint32_t id) {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

}  // namespace

Executor::Executor(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                   const TransferPlan& plan, const ExecutionOptions& options)
    : workload_(workload),
      lifetimes_(lifetimes),
      machine_(machine),
      plan_(plan),
      options_(options),
      kernels_(workload.kernels.size()),
      last_(kernels_ * options.iterations),
      drives_(DrivesOf(machine)),
      tiers_(1 + drives_.size()),
      state_(workload, lifetimes, machine, plan, options.move_bytes),
      tables_(MakeExecutionTables(workload, lifetimes, machine, plan, state_)),
      expected_(ExpectedUse()),
      dying_(workload.kernels.size()),
      lanes_(2 * tiers_),
      writes_(tiers_),
      reads_(tiers_),
      drive_loads_(drives_),
      read_waits_(last_, 0),
      room_waits_(last_, 0),
      ssd_read_waits_(options.iterations, 0),
      ssd_room_waits_(options.iterations, 0) {
  planned_starts_.push_back(0);
  for (const Kernel& kernel : workload.kernels)
    planned_starts_.push_back(planned_starts_.back() + kernel.duration);
  for (uint32_t t = 0; t < workload.tensors.size(); ++t) {
    if (lifetimes.last_live[t] != Lifetimes::kNoEnd) dying_[lifetimes.last_live[t]].push_back(t);
  }
  PlaceTensors();
}

// Two iterations more than are run, since absences reach over the end.
std::vector<int64_t> Executor::ExpectedUse() const {
  const size_t size = last_ + 2 * kernels_;
  std::vector<int64_t> change(size + 1, 0);
  for (const PlannedAbsence& absence : plan_.absences) {
    const IdleInterval& interval = lifetimes_.intervals[absence.interval];
    const int64_t bytes =
        static_cast<int64_t>(BytesOfPieces(workload_.tensors[interval.tensor].bytes, machine_.piece_bytes,
                                           absence.first_piece, absence.last_piece));
    for (uint64_t base = 0; base < size; base += kernels_) {
      change[std::min<size_t>(size, base + absence.from)] -= bytes;
      change[std::min<size_t>(size, base + interval.before)] += bytes;
    }
  }
  std::vector<int64_t> expected(size);
  int64_t away = 0;
  for (size_t position = 0; position < size; ++position) {
    away += change[position];
    expected[position] = lifetimes_.live_bytes[position % kernels_] + away;
  }
  return expected;
}

// Tensors that live over an iteration's start: those that the plan has away then are away; the others are on the GPU, as
// far as there is room, in the order of their first use.
void Executor::PlaceTensors() {
  std::vector<bool> placed(workload_.tensors.size(), false);
  for (const AwayAtStart& away : tables_.away_at_start) {
    if (!placed[away.tensor]) PlaceAway(away);
    placed[away.tensor] = true;
  }
  std::vector<uint32_t> rest;
  for (uint32_t t = 0; t < workload_.tensors.size(); ++t) {
    if (lifetimes_.live_at_start[t] && !placed[t]) rest.push_back(t);
  }
  const auto first_use = [this](uint32_t t) {
    return lifetimes_.uses[t].empty() ? last_ : uint64_t{lifetimes_.uses[t].front()};
  };
  std::stable_sort(rest.begin(), rest.end(),
                   [&](uint32_t a, uint32_t b) { return first_use(a) < first_use(b); });
  const Bytes first_kernel = NextRoom(workload_.kernels[0]);
  for (uint32_t t : rest) {
    TensorState& tensor = state_.tensors[t];
    const Bytes bytes = workload_.tensors[t].bytes;
    if (lifetimes_.uses[t].empty() || state_.used[0] + bytes + first_kernel > machine_.gpu_bytes) {
      PlaceAway({t, PlanTier::kHost, FirstNeeded(t), FirstReads(t)});
      continue;
    }
    tensor.live = true;
    for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) state_.Put(p, Place::kGpu);
    if (options_.record)
      result_.events.push_back({ScheduleEvent::Kind::kInit, 0, t, 0, 0, Place::kGpu, Place::kGpu, 0, 0, 0});
  }
  for (const DueWrite& write : tables_.first_writes) {
    if (state_.parts[write.part].valid[0]) QueueWrite(write, 0, 0);
  }
}

// Of a tensor that lives over the iteration's start: its first use, or where it is freed, if that comes first.
uint32_t Executor::FirstNeeded(uint32_t t) const {
  const uint32_t first = lifetimes_.uses[t].empty() ? 0 : lifetimes_.uses[t].front();
  return lifetimes_.last_live[t] < first ? lifetimes_.last_live[t] + 1 : first;
}

bool Executor::FirstReads(uint32_t t) const {
  const uint32_t first = FirstNeeded(t);
  return lifetimes_.last_live[t] >= first && Contains(workload_.kernels[first].inputs, t);
}

void Executor::PlaceAway(const AwayAtStart& away) {
  const uint32_t t = away.tensor;
  TensorState& tensor = state_.tensors[t];
  tensor.live = true;
  const bool fits = state_.used[1] + workload_.tensors[t].bytes <= machine_.host_bytes;
  const Place place = away.tier == PlanTier::kHost && fits ? Place::kHost : Place::kSsd;
  for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) {
    state_.Put(p, place);
    ExecutionPart& part = state_.parts[p];
    if (place == Place::kSsd) (void)DriveFor(&part);
    if (lifetimes_.uses[t].empty()) continue;
    part.away_until = away.until;
    part.returns = away.returns;
    part.keep_copy = true;  // until the tensor is written; absences may need it
    expected_.Add(0, part.away_until, -static_cast<int64_t>(part.bytes));
    QueueRead(p);
  }
  if (options_.record)
    result_.events.push_back({ScheduleEvent::Kind::kInit, 0, t, 0, 0, Place::kGpu, place, 0, 0, 0});
}

absl::Status Executor::Run() {
  while (result_.iteration_ends.size() < options_.iterations) {
    StartAll();
    Nanos next = NextEvent();
    if (next == kForever) {
      EvictInNeed();
      StartAll();
      next = NextEvent();
      if (next == kForever) return CheckProgress();
    }
    Advance(next);
  }
  return absl::OkStatus();
}

absl::Status Executor::CheckProgress() {
  const uint32_t k = KernelOf(started_);
  return absl::ResourceExhaustedError(absl::StrCat(
      "kernel ", k, " (", workload_.kernels[k].name, ") needs ",
      NextRoom(workload_.kernels[k]) + NextMissing(workload_.kernels[k]), " bytes more on the GPU, of whose ",
      machine_.gpu_bytes, " only ", FreeOnGpu(), " can be freed; its own tensors exceed the GPU's memory"));
}

void Executor::StartAll() {
  wake_ = 0;
  if (Waiting()) {
    StartAllReads();
    StartKernel();
  }
  for (Lane lane = 1; lane < tiers_; ++lane) StartWrites(lane);
  StartWrites(kHostOut);
  StartAllReads();
}

void Executor::StartAllReads() {
  for (Lane lane = 1; lane < tiers_; ++lane) StartReads(Back(lane));
  StartReads(HostIn());
}

// ---- kernels

Bytes Executor::FreeOnGpu() const {
  return machine_.gpu_bytes > state_.used[0] ? machine_.gpu_bytes - state_.used[0] : 0;
}

bool Executor::Uses(const Kernel& kernel, uint32_t tensor) const {
  return Contains(kernel.inputs, tensor) || Contains(kernel.outputs, tensor);
}

bool Executor::InputsReady(const Kernel& kernel) const {
  return std::all_of(kernel.inputs.begin(), kernel.inputs.end(),
                     [this](uint32_t t) { return !state_.tensors[t].live || state_.AllOnGpu(t); });
}

bool Executor::NextIsHeld(const Kernel& kernel) const {
  for (uint32_t t : kernel.outputs) {
    if (state_.tensors[t].moves_out + state_.tensors[t].moves_in != 0) return true;
  }
  for (uint32_t t : dying_[KernelOf(started_)]) {
    if (state_.tensors[t].moves_out != 0) return true;
  }
  return false;
}

Bytes Executor::NextRoom(const Kernel& kernel) const {
  Bytes bytes = kernel.workspace_bytes;
  for (uint32_t t : kernel.outputs) {
    if (!state_.tensors[t].live || !Contains(kernel.inputs, t)) bytes += state_.LackOnGpu(t);
  }
  for (uint32_t t : kernel.inputs) {
    if (!state_.tensors[t].live && !Contains(kernel.outputs, t)) bytes += workload_.tensors[t].bytes;
  }
  return bytes;
}

Bytes Executor::NextMissing(const Kernel& kernel) const {
  Bytes bytes = 0;
  for (uint32_t t : kernel.inputs) {
    if (state_.tensors[t].live) bytes += state_.LackOnGpu(t);
  }
  return bytes;
}

bool Executor::StartKernel() {
  const uint32_t k = KernelOf(started_);
  const Kernel& kernel = workload_.kernels[k];
  if (!InputsReady(kernel) || NextIsHeld(kernel) || NextRoom(kernel) > FreeOnGpu()) return false;
  state_.Take(Place::kGpu, kernel.workspace_bytes);
  for (const auto* ids : {&kernel.inputs, &kernel.outputs}) {
    for (uint32_t t : *ids) {
      TensorState& tensor = state_.tensors[t];
      const bool appears = !tensor.live;
      tensor.live = true;
      tensor.last_use = started_ + 1;
      state_.HoldAllOnGpu(t);
      if (appears && ids == &kernel.inputs) state_.ValidateAllOnGpu(t);
      for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) state_.parts[p].drop_pending = false;
    }
  }
  stale_ = kernel.outputs;
  const Nanos duration = options_.durations.empty() ? kernel.duration : options_.durations[started_];
  kernel_start_ = now_;
  kernel_end_ = now_ + ToTicks(static_cast<double>(duration));
  running_ = true;
  if (options_.record)
    result_.events.push_back({ScheduleEvent::Kind::kKernel, static_cast<uint32_t>(started_ / kernels_), k, 0,
                              0, Place::kGpu, Place::kGpu, kernel_start_, kernel_end_, 0});
  ++started_;
  return true;
}

// Copies that the kernel made stale go only now: in the order of events at one time, moves start before kernels.
void Executor::FreeStale() {
  for (uint32_t t : stale_) FreeElsewhere(t);
  stale_.clear();
}

void Executor::EndKernel() {
  const uint64_t position = started_ - 1;
  const uint32_t k = KernelOf(position);
  const Kernel& kernel = workload_.kernels[k];
  running_ = false;
  previous_end_ = now_;
  state_.used[0] -= kernel.workspace_bytes;
  for (uint32_t t : kernel.outputs) {
    state_.ValidateAllOnGpu(t);
    ++state_.tensors[t].content;
  }
  for (uint32_t t : dying_[k]) {
    state_.FreeAll(t, Place::kGpu);
    FreeElsewhere(t);
    state_.tensors[t].live = false;
    ++state_.tensors[t].content;
  }
  if (k + 1 == kernels_) result_.iteration_ends.push_back(now_);
  for (const DueWrite& write : tables_.writes[k]) QueueWrite(write, position, 0);
  for (const DueDrop& due : tables_.drops[k]) BeginAbsence(due);
}

// ---- absences

void Executor::QueueWrite(const DueWrite& write, uint64_t from, uint64_t advance) {
  state_.parts[write.part].tier = write.tier;
  const uint64_t needed = from + write.needed;
  const ExecutionPart& part = state_.parts[write.part];
  PushWrite(write.tier == PlanTier::kHost ? kHostOut : 1 + DriveFor(&state_.parts[write.part]),
            {needed - std::min(needed, advance), order_++, write.part, state_.tensors[part.tensor].content,
             from + write.expires});
}

void Executor::BeginAbsence(const DueDrop& due) {
  ExecutionPart& part = state_.parts[due.part];
  if (!part.valid[0]) return;  // it left in need
  const uint64_t position = started_ - 1;
  part.away_until = position + due.away;
  part.keep_copy = due.keep_copy;
  part.returns = due.returns;
  part.read_lead = due.read_lead;
  part.drop_pending = true;
  // It leaves before the plan counts on it.
  const uint64_t counted = position + due.counted_from;
  if (!part.moving_out && state_.ElsewhereValid(part)) {
    expected_.Add(started_, counted, -static_cast<int64_t>(part.bytes));
    DropFromGpu(due.part);
  }
}

void Executor::DropFromGpu(uint32_t p) {
  ExecutionPart& part = state_.parts[p];
  part.drop_pending = false;
  state_.Free(p, Place::kGpu);
  Record(ScheduleEvent::Kind::kDrop, p, Place::kGpu, Place::kGpu, now_, now_);
  if (part.returns) QueueRead(p);
}

void Executor::QueueRead(uint32_t p) {
  ExecutionPart& part = state_.parts[p];
  if (!part.returns) return;
  const Lane lane = LaneBack(part);
  if (!IsHost(lane)) SetToCome(&part, true);
  if (options_.prefetch) ReadsOf(lane).push({part.away_until, p});
}

// Or where it is freed, if that comes first.
uint64_t Executor::NextUse(uint32_t tensor, uint64_t from) const {
  const uint32_t end = lifetimes_.last_live[tensor];
  const uint64_t next = NextNamed(tensor, from);
  if (end == Lifetimes::kNoEnd || !state_.tensors[tensor].live) return next;
  return std::min(next, from + (end + kernels_ - KernelOf(from)) % kernels_ + 1);
}

uint64_t Executor::NextNamed(uint32_t tensor, uint64_t from) const {
  const std::vector<uint32_t>& uses = lifetimes_.uses[tensor];
  if (uses.empty()) return last_ + 2 * kernels_;
  const uint64_t base = from - from % kernels_;
  const auto it = std::lower_bound(uses.begin(), uses.end(), KernelOf(from));
  return it == uses.end() ? base + kernels_ + uses.front() : base + *it;
}

// ---- time

Nanos Executor::NextEvent() const {
  Nanos next = running_ ? kernel_end_ : kForever;
  for (const Move& move : lanes_) {
    if (move.active) next = std::min(next, move.end);
  }
  return wake_ != 0 && running_ ? std::min(next, wake_) : next;
}

// By what the next kernel waits for: bytes on their way, else room.
void Executor::CountWait(Nanos time) {
  const Kernel& kernel = workload_.kernels[KernelOf(started_)];
  const uint64_t iteration = started_ / kernels_;
  bool arriving = false;
  for (uint32_t t : kernel.inputs) arriving |= state_.tensors[t].moves_in != 0;
  (arriving ? read_waits_ : room_waits_)[started_] += time;
  bool reading = false, writing = false;
  for (Lane lane = 1; lane < tiers_; ++lane) {
    const Move& read = lanes_[Back(lane)];
    reading |= read.active && Contains(kernel.inputs, state_.parts[read.part].tensor);
    writing |= lanes_[lane].active;
  }
  if (arriving && reading) ssd_read_waits_[iteration] += time;
  if (!arriving && writing) ssd_room_waits_[iteration] += time;
}

void Executor::Advance(Nanos to) {
  if (Waiting()) CountWait(to - now_);
  now_ = to;
  FreeStale();
  if (running_ && kernel_end_ == now_) EndKernel();
  for (Lane lane = 0; lane < lanes_.size(); ++lane) {
    if (lanes_[lane].active && lanes_[lane].end == now_) EndMove(lane);
  }
}

void Executor::Record(ScheduleEvent::Kind kind, uint32_t p, Place from, Place to, Nanos start, Nanos end) {
  if (!options_.record) return;
  const ExecutionPart& part = state_.parts[p];
  result_.events.push_back({kind, static_cast<uint32_t>(started_ / kernels_), part.tensor, part.first_piece,
                            part.last_piece, from, to, start, end, part.drive});
}

}  // namespace spillway::policy
