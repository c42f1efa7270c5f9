#include "policy/executor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace spillway::policy {
namespace {

constexpr double kNanosPerSecond = 1e9;
// All times are multiples of this. Judges of schedules take times 1 ns apart for the same one; none of ours are.
constexpr Nanos kTick = 2;
constexpr Nanos kForever = std::numeric_limits<Nanos>::max();

Nanos ToTicks(double nanos) {
  return std::max<Nanos>(kTick, static_cast<Nanos>(std::ceil(nanos / static_cast<double>(kTick))) * kTick);
}

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
      state_(workload, lifetimes, machine, plan, options.move_bytes),
      tables_(MakeExecutionTables(workload, lifetimes, machine, plan, state_)),
      expected_(ExpectedUse()),
      dying_(workload.kernels.size()),
      read_waits_(last_, 0),
      room_waits_(last_, 0) {
  planned_starts_.push_back(0);
  for (const Kernel& kernel : workload.kernels)
    planned_starts_.push_back(planned_starts_.back() + kernel.duration);
  for (uint32_t t = 0; t < workload.tensors.size(); ++t) {
    if (!workload.tensors[t].persistent && !lifetimes.uses[t].empty())
      dying_[lifetimes.uses[t].back()].push_back(t);
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

// Persistent tensors that the plan has away at an iteration's start are away; the others are on the GPU, as far as there
// is room, in the order of their first use.
void Executor::PlaceTensors() {
  std::vector<bool> placed(workload_.tensors.size(), false);
  for (const AwayAtStart& away : tables_.away_at_start) {
    if (!placed[away.tensor]) PlaceAway(away.tensor, away.tier);
    placed[away.tensor] = true;
  }
  std::vector<uint32_t> rest;
  for (uint32_t t = 0; t < workload_.tensors.size(); ++t) {
    if (workload_.tensors[t].persistent && !placed[t]) rest.push_back(t);
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
      PlaceAway(t, PlanTier::kHost);
      continue;
    }
    tensor.live = true;
    for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) state_.Put(p, Place::kGpu);
    if (options_.record)
      result_.events.push_back({ScheduleEvent::Kind::kInit, 0, t, 0, 0, Place::kGpu, Place::kGpu, 0, 0});
  }
  for (const DueWrite& write : tables_.first_writes) {
    if (state_.parts[write.part].valid[0]) QueueWrite(write, 0, 0);
  }
}

void Executor::PlaceAway(uint32_t t, PlanTier tier) {
  TensorState& tensor = state_.tensors[t];
  tensor.live = true;
  const bool fits = state_.used[1] + workload_.tensors[t].bytes <= machine_.host_bytes;
  const Place place = tier == PlanTier::kHost && fits ? Place::kHost : Place::kSsd;
  for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) {
    state_.Put(p, place);
    if (lifetimes_.uses[t].empty()) continue;
    ExecutionPart& part = state_.parts[p];
    part.away_until = lifetimes_.uses[t].front();
    part.returns = Contains(workload_.kernels[part.away_until].inputs, t);
    part.keep_copy = true;  // until the tensor is written; absences may need it
    expected_.Add(0, part.away_until, -static_cast<int64_t>(part.bytes));
    QueueRead(p);
  }
  if (options_.record)
    result_.events.push_back({ScheduleEvent::Kind::kInit, 0, t, 0, 0, Place::kGpu, place, 0, 0});
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
    StartReads(kSsdIn);
    StartReads(kHostIn);
    StartKernel();
  }
  StartWrites(kSsdOut);
  StartWrites(kHostOut);
  StartReads(kSsdIn);
  StartReads(kHostIn);
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
                              0, Place::kGpu, Place::kGpu, kernel_start_, kernel_end_});
  ++started_;
  return true;
}

// Copies that the kernel made stale go only now: in the order of events at one time, moves start before kernels.
void Executor::FreeStale() {
  for (uint32_t t : stale_) {
    state_.FreeAll(t, Place::kHost);
    state_.FreeAll(t, Place::kSsd);
  }
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
    for (Place place : {Place::kGpu, Place::kHost, Place::kSsd}) state_.FreeAll(t, place);
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
  writes_[static_cast<size_t>(write.tier)].push({needed - std::min(needed, advance), order_++, write.part,
                                                 state_.tensors[state_.parts[write.part].tensor].content,
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
  const ExecutionPart& part = state_.parts[p];
  if (part.returns && options_.prefetch) reads_[part.valid[1] ? 0 : 1].push({part.away_until, p});
}

uint64_t Executor::NextUse(uint32_t tensor, uint64_t from) const {
  const std::vector<uint32_t>& uses = lifetimes_.uses[tensor];
  if (uses.empty()) return last_ + 2 * kernels_;
  const uint64_t base = from - from % kernels_;
  const auto it = std::lower_bound(uses.begin(), uses.end(), KernelOf(from));
  return it == uses.end() ? base + kernels_ + uses.front() : base + *it;
}

// ---- moves

double Executor::RateOf(Lane lane) const {
  const bool out = lane == kHostOut || lane == kSsdOut;
  const Lane host = out ? kHostOut : kHostIn;
  const Lane ssd = out ? kSsdOut : kSsdIn;
  const double pcie = out ? machine_.pcie_out : machine_.pcie_in;
  const double disk = out ? machine_.ssd_write : machine_.ssd_read;
  const double share = std::min(disk, pcie / 2);  // of PCIe, that is the SSD's while it has anything to do
  const bool host_asks = out ? !writes_[0].empty() : !reads_[0].empty();
  const bool ssd_asks = out ? !writes_[1].empty() : !reads_[1].empty();
  if (lane == ssd) {
    if (machine_.ssd_shared && lanes_[out ? kSsdIn : kSsdOut].active) return 0;
    const double left = pcie - (lanes_[host].active ? lanes_[host].rate : 0);
    if (left < 0.999 * share) return 0;
    return host_asks ? share : std::min(disk, left);
  }
  const double taken = lanes_[ssd].active ? lanes_[ssd].rate : ssd_asks ? share : 0;
  return pcie - taken < pcie / 100 ? 0 : pcie - taken;
}

void Executor::StartMove(Lane lane, uint32_t p) {
  ExecutionPart& part = state_.parts[p];
  TensorState& tensor = state_.tensors[part.tensor];
  const bool out = lane == kHostOut || lane == kSsdOut;
  const Place other = lane == kHostOut || lane == kHostIn ? Place::kHost : Place::kSsd;
  const double rate = RateOf(lane);
  const Nanos time = ToTicks(static_cast<double>(part.bytes) / rate * kNanosPerSecond +
                             static_cast<double>(machine_.transfer_latency));
  lanes_[lane] = {true, p, now_ + time, rate};
  (out ? part.moving_out : part.moving_in) = true;
  ++(out ? tensor.moves_out : tensor.moves_in);
  state_.Take(out ? other : Place::kGpu, part.bytes);
  if (!out) {
    tensor.held_on_gpu += part.bytes;
    const uint64_t current = Current();
    if (part.away_until > current) expected_.Add(current, part.away_until, static_cast<int64_t>(part.bytes));
  }
  moved_.push_back({now_, now_ + time, part.bytes, lane});
  Record(ScheduleEvent::Kind::kMove, p, out ? Place::kGpu : other, out ? other : Place::kGpu, now_,
         now_ + time);
}

void Executor::EndMove(Lane lane) {
  lanes_[lane].active = false;
  const uint32_t p = lanes_[lane].part;
  ExecutionPart& part = state_.parts[p];
  TensorState& tensor = state_.tensors[part.tensor];
  if (lane == kHostOut || lane == kSsdOut) {
    part.moving_out = false;
    --tensor.moves_out;
    state_.SetValid(p, lane == kHostOut ? Place::kHost : Place::kSsd);
    if (part.drop_pending) DropFromGpu(p);
    return;
  }
  part.moving_in = false;
  --tensor.moves_in;
  state_.SetValid(p, Place::kGpu);
  if (lane == kHostIn && !part.keep_copy) {
    state_.Free(p, Place::kHost);
    Record(ScheduleEvent::Kind::kDrop, p, Place::kHost, Place::kHost, now_, now_);
  }
}

bool Executor::Stale(const WriteEntry& entry) const {
  const ExecutionPart& part = state_.parts[entry.part];
  return started_ > entry.expires || entry.content != state_.tensors[part.tensor].content || !part.valid[0] ||
         state_.ElsewhereValid(part) || part.moving_out;
}

void Executor::StartWrites(Lane lane) {
  if (lanes_[lane].active) return;
  const size_t tier = lane == kHostOut ? 0 : 1;
  while (!writes_[tier].empty() && Stale(writes_[tier].top())) writes_[tier].pop();
  if (writes_[tier].empty() || RateOf(lane) == 0) return;
  const WriteEntry entry = writes_[tier].top();
  const ExecutionPart& part = state_.parts[entry.part];
  if (lane == kHostOut && state_.used[1] + part.bytes > machine_.host_bytes) {
    if (!Waiting() || !part.drop_pending) return;
    writes_[0].pop();  // a kernel waits for its room, and the host has none: to the SSD
    writes_[1].push(entry);
    StartWrites(kSsdOut);
    StartWrites(kHostOut);
    return;
  }
  // A kernel that is running may write it: its content is about to be stale.
  if (running_ && Contains(workload_.kernels[KernelOf(started_ - 1)].outputs, part.tensor)) return;
  writes_[tier].pop();
  StartMove(lane, entry.part);
}

// ---- reads

void Executor::StartReads(Lane lane) {
  if (lanes_[lane].active) return;
  auto& queue = reads_[lane == kHostIn ? 0 : 1];
  const auto stale = [this](const ReadEntry& entry) {
    const ExecutionPart& part = state_.parts[entry.part];
    return entry.due < started_ || entry.due != part.away_until || part.valid[0] || part.moving_in ||
           !state_.tensors[part.tensor].live;
  };
  while (!queue.empty() && stale(queue.top())) queue.pop();
  if (RateOf(lane) == 0) return;
  if (Waiting() && StartOwnRead(lane)) return;
  if (!queue.empty()) StartQueuedRead(lane);
}

// What the next kernel waits for needs only room.
bool Executor::StartOwnRead(Lane lane) {
  for (uint32_t t : workload_.kernels[KernelOf(started_)].inputs) {
    const TensorState& tensor = state_.tensors[t];
    if (!tensor.live || state_.AllOnGpu(t)) continue;
    for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) {
      const ExecutionPart& part = state_.parts[p];
      if (part.valid[0] || part.moving_in || part.moving_out) continue;
      if ((lane == kHostIn) != part.valid[1] || part.bytes > FreeOnGpu()) continue;
      StartMove(lane, p);
      return true;
    }
  }
  return false;
}

bool Executor::StartQueuedRead(Lane lane) {
  auto& queue = reads_[lane == kHostIn ? 0 : 1];
  const ReadEntry entry = queue.top();
  if (!MayReadAhead(entry)) return false;
  queue.pop();
  StartMove(lane, entry.part);
  return true;
}

bool Executor::MayReadAhead(const ReadEntry& entry) {
  const ExecutionPart& part = state_.parts[entry.part];
  if (part.moving_out) return false;
  Bytes free = FreeOnGpu();
  if (Waiting()) {  // the next kernel's room is not ours
    const Kernel& kernel = workload_.kernels[KernelOf(started_)];
    const Bytes next = NextRoom(kernel) + NextMissing(kernel);
    free -= std::min(free, next);
  }
  if (part.bytes > free) return false;
  if (entry.due <= started_) return true;
  if (part.read_lead >= 0 && part.valid[1]) {
    const Nanos early = PlannedStart(entry.due) - PlannedNow() - part.read_lead;
    if (early > 0) {
      if (running_)
        wake_ = wake_ == 0 ? now_ + ToTicks(static_cast<double>(early))
                           : std::min(wake_, now_ + ToTicks(static_cast<double>(early)));
      return false;
    }
  }
  return expected_.Max(Current(), entry.due) <=
         static_cast<int64_t>(machine_.gpu_bytes) - static_cast<int64_t>(part.bytes);
}

Nanos Executor::PlannedStart(uint64_t position) const {
  return static_cast<Nanos>(position / kernels_) * planned_starts_[kernels_] +
         planned_starts_[KernelOf(position)];
}

// Where the job is on the timeline without waits.
Nanos Executor::PlannedNow() const {
  if (!running_) return PlannedStart(started_);
  const Nanos duration = workload_.kernels[KernelOf(started_ - 1)].duration;
  return PlannedStart(started_ - 1) + std::min(duration, now_ - kernel_start_);
}

// ---- eviction in need

std::vector<uint32_t> Executor::VictimsInOrder() const {
  const Kernel& kernel = workload_.kernels[KernelOf(started_)];
  std::vector<std::pair<uint64_t, uint32_t>> keyed;
  for (uint32_t t = 0; t < state_.tensors.size(); ++t) {
    const TensorState& tensor = state_.tensors[t];
    if (!tensor.live || tensor.parts_on_gpu == 0 || Uses(kernel, t)) continue;
    const uint64_t key =
        options_.victim == Victim::kFarthestNextUse ? ~NextUse(t, started_) : tensor.last_use;
    for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) {
      if (state_.parts[p].valid[0] && !state_.parts[p].moving_out) keyed.emplace_back(key, p);
    }
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<uint32_t> order;
  for (const auto& [key, part] : keyed) order.push_back(part);
  return order;
}

// The next kernel does not fit and nothing moves: what it needs leaves outside the plan.
void Executor::EvictInNeed() {
  const Kernel& kernel = workload_.kernels[KernelOf(started_)];
  const Bytes needed = NextRoom(kernel) + NextMissing(kernel);
  Bytes leaving = FreeOnGpu();
  Bytes host = machine_.host_bytes - std::min(machine_.host_bytes, state_.used[1]);
  for (uint32_t p : VictimsInOrder()) {
    if (leaving >= needed) return;
    ExecutionPart& part = state_.parts[p];
    leaving += part.bytes;
    ++result_.evictions_in_need;
    part.away_until = NextUse(part.tensor, started_);
    part.returns = Contains(workload_.kernels[KernelOf(part.away_until)].inputs, part.tensor);
    part.read_lead = -1;
    part.keep_copy = false;
    expected_.Add(started_, std::min(part.away_until, last_ + 2 * kernels_),
                  -static_cast<int64_t>(part.bytes));
    if (state_.ElsewhereValid(part)) {
      DropFromGpu(p);
      continue;
    }
    part.drop_pending = true;
    const bool to_host = host >= part.bytes;
    if (to_host) host -= part.bytes;
    const uint32_t away = static_cast<uint32_t>(part.away_until - started_);
    QueueWrite({p, to_host ? PlanTier::kHost : PlanTier::kDisk, 0, away}, started_, started_);
  }
}

// ---- time

Nanos Executor::NextEvent() const {
  Nanos next = running_ ? kernel_end_ : kForever;
  for (const Move& move : lanes_) {
    if (move.active) next = std::min(next, move.end);
  }
  return wake_ != 0 && running_ ? std::min(next, wake_) : next;
}

void Executor::Advance(Nanos to) {
  if (Waiting()) {
    const Kernel& kernel = workload_.kernels[KernelOf(started_)];
    bool arriving = false;
    for (uint32_t t : kernel.inputs) arriving |= state_.tensors[t].moves_in != 0;
    (arriving ? read_waits_ : room_waits_)[started_] += to - now_;
  }
  now_ = to;
  FreeStale();
  if (running_ && kernel_end_ == now_) EndKernel();
  for (Lane lane : {kHostOut, kSsdOut, kHostIn, kSsdIn}) {
    if (lanes_[lane].active && lanes_[lane].end == now_) EndMove(lane);
  }
}

void Executor::Record(ScheduleEvent::Kind kind, uint32_t p, Place from, Place to, Nanos start, Nanos end) {
  if (!options_.record) return;
  const ExecutionPart& part = state_.parts[p];
  result_.events.push_back({kind, static_cast<uint32_t>(started_ / kernels_), part.tensor, part.first_piece,
                            part.last_piece, from, to, start, end});
}

}  // namespace spillway::policy
