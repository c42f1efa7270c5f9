// Executor's moves: the lanes, which copy goes next on each, and eviction in need.

#include <algorithm>
#include <cmath>

#include "policy/simulator/executor.h"

namespace spillway::policy {
namespace {

constexpr double kNanosPerSecond = 1e9;

bool Contains(const std::vector<uint32_t>& ascending, uint32_t id) {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

}  // namespace

double Executor::DriveRate(Lane lane) const {
  return IsOut(lane) ? drives_[lane - 1].write : drives_[lane - tiers_ - 1].read;
}

// Of PCIe, that is a drive's while it has anything to do: together they have half, if they can use it.
double Executor::ShareOf(Lane lane) const {
  const double pcie = IsOut(lane) ? machine_.pcie_out : machine_.pcie_in;
  const double all = IsOut(lane) ? machine_.ssd_write : machine_.ssd_read;
  return DriveRate(lane) * std::min(1.0, pcie / 2 / all);
}

bool Executor::Asks(Lane lane) const {
  return IsOut(lane) ? !writes_[lane].empty() : !reads_[lane - tiers_].empty();
}

double Executor::RateOf(Lane lane) const {
  const bool out = IsOut(lane);
  const Lane host = out ? kHostOut : HostIn();
  double left = out ? machine_.pcie_out : machine_.pcie_in;
  for (Lane other = host; other < host + tiers_; ++other) {
    if (other == lane) continue;
    if (lanes_[other].active) {
      left -= lanes_[other].rate;
    } else if (lane == host && Asks(other)) {
      left -= ShareOf(other);
    }
  }
  if (lane == host) return left < (out ? machine_.pcie_out : machine_.pcie_in) / 100 ? 0 : left;
  if (machine_.ssd_shared && lanes_[out ? Back(lane) : lane - tiers_].active) return 0;
  const double share = ShareOf(lane);
  if (left < 0.999 * share) return 0;
  return Asks(host) ? share : std::min(DriveRate(lane), left);
}

void Executor::StartMove(Lane lane, uint32_t p) {
  ExecutionPart& part = state_.parts[p];
  TensorState& tensor = state_.tensors[part.tensor];
  const bool out = IsOut(lane);
  const Place other = IsHost(lane) ? Place::kHost : Place::kSsd;
  const double rate = RateOf(lane);
  const Nanos time = ToTicks(static_cast<double>(part.bytes) / rate * kNanosPerSecond +
                             static_cast<double>(machine_.transfer_latency));
  lanes_[lane] = {true, p, now_ + time, rate};
  (out ? part.moving_out : part.moving_in) = true;
  ++(out ? tensor.moves_out : tensor.moves_in);
  state_.Take(out ? other : Place::kGpu, part.bytes);
  if (out && !IsHost(lane)) SetToCome(&part, true);
  if (!out) {
    SetToCome(&part, false);
    tensor.held_on_gpu += part.bytes;
    const uint64_t current = Current();
    if (part.away_until > current) expected_.Add(current, part.away_until, static_cast<int64_t>(part.bytes));
  }
  moved_.push_back({now_, now_ + time, part.bytes, out, IsHost(lane)});
  Record(ScheduleEvent::Kind::kMove, p, out ? Place::kGpu : other, out ? other : Place::kGpu, now_,
         now_ + time);
}

void Executor::EndMove(Lane lane) {
  lanes_[lane].active = false;
  const uint32_t p = lanes_[lane].part;
  ExecutionPart& part = state_.parts[p];
  TensorState& tensor = state_.tensors[part.tensor];
  if (IsOut(lane)) {
    part.moving_out = false;
    --tensor.moves_out;
    state_.SetValid(p, IsHost(lane) ? Place::kHost : Place::kSsd);
    if (part.drop_pending) DropFromGpu(p);
    return;
  }
  part.moving_in = false;
  --tensor.moves_in;
  state_.SetValid(p, Place::kGpu);
  if (IsHost(lane) && !part.keep_copy) {
    state_.Free(p, Place::kHost);
    Record(ScheduleEvent::Kind::kDrop, p, Place::kHost, Place::kHost, now_, now_);
  }
}

// The same one in each iteration, so that iterations are alike and what they waited for tells about the next.
uint32_t Executor::DriveFor(ExecutionPart* part) {
  if (!part->has_drive) part->drive = static_cast<uint32_t>(drive_loads_.Pick(part->bytes));
  part->has_drive = true;
  return part->drive;
}

// Whether the part's drive still has to read it, as far as anybody knows.
void Executor::SetToCome(ExecutionPart* part, bool to_come) {
  if (to_come && !part->read_to_come) drive_loads_.AddRead(part->drive, part->bytes);
  if (!to_come && part->read_to_come) drive_loads_.RemoveRead(part->drive, part->bytes);
  part->read_to_come = to_come;
}

void Executor::FreeElsewhere(uint32_t tensor) {
  for (uint32_t p = state_.tensors[tensor].first_part; p < state_.tensors[tensor].last_part; ++p)
    SetToCome(&state_.parts[p], false);
  state_.FreeAll(tensor, Place::kHost);
  state_.FreeAll(tensor, Place::kSsd);
}

void Executor::PushWrite(Lane lane, const WriteEntry& entry) {
  if (!IsHost(lane)) drive_loads_.AddWrite(lane - 1, state_.parts[entry.part].bytes);
  WritesOf(lane).push(entry);
}

void Executor::PopWrite(Lane lane) {
  if (!IsHost(lane)) drive_loads_.RemoveWrite(lane - 1, state_.parts[WritesOf(lane).top().part].bytes);
  WritesOf(lane).pop();
}

bool Executor::Stale(const WriteEntry& entry) const {
  const ExecutionPart& part = state_.parts[entry.part];
  return started_ > entry.expires || entry.content != state_.tensors[part.tensor].content || !part.valid[0] ||
         state_.ElsewhereValid(part) || part.moving_out;
}

void Executor::StartWrites(Lane lane) {
  if (lanes_[lane].active) return;
  Queue<WriteEntry>& queue = WritesOf(lane);
  while (!queue.empty() && Stale(queue.top())) PopWrite(lane);
  if (queue.empty() || RateOf(lane) == 0) return;
  const WriteEntry entry = queue.top();
  const ExecutionPart& part = state_.parts[entry.part];
  if (lane == kHostOut && state_.used[1] + part.bytes > machine_.host_bytes) {
    if (!Waiting() || !part.drop_pending) return;
    PopWrite(lane);  // a kernel waits for its room, and the host has none: to the SSD
    const Lane drive = 1 + DriveFor(&state_.parts[entry.part]);
    PushWrite(drive, entry);
    StartWrites(drive);
    StartWrites(kHostOut);
    return;
  }
  // A kernel that is running may write it: its content is about to be stale.
  if (running_ && Contains(workload_.kernels[KernelOf(started_ - 1)].outputs, part.tensor)) return;
  PopWrite(lane);
  StartMove(lane, entry.part);
}

// ---- reads

void Executor::StartReads(Lane lane) {
  if (lanes_[lane].active) return;
  Queue<ReadEntry>& queue = ReadsOf(lane);
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
      if (lane != LaneBack(part) || part.bytes > FreeOnGpu()) continue;
      StartMove(lane, p);
      return true;
    }
  }
  return false;
}

bool Executor::StartQueuedRead(Lane lane) {
  Queue<ReadEntry>& queue = ReadsOf(lane);
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
    part.returns = part.away_until == NextNamed(part.tensor, started_) &&
                   Contains(workload_.kernels[KernelOf(part.away_until)].inputs, part.tensor);
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

}  // namespace spillway::policy
