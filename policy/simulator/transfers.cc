#include "policy/simulator/transfers.h"

#include <algorithm>
#include <utility>

namespace spillway::policy {
Transfers::Transfers(const Workload& workload, const Machine& machine, Headroom headroom,
                     std::optional<Headroom> host_headroom, bool prefetch, const JobPlace& place,
                     PartState* state, ExecutionStats* metrics)
    : workload_(workload),
      machine_(machine),
      prefetch_(prefetch),
      kernels_(workload.kernels.size()),
      place_(place),
      state_(*state),
      metrics_(*metrics),
      queues_(machine),
      link_(DirectionsShare(machine) ? std::make_unique<SharedLink>(machine, queues_.tiers()) : nullptr),
      headroom_(std::move(headroom)),
      host_headroom_(std::move(host_headroom)) {
  planned_starts_.push_back(0);
  for (const WorkloadKernel& kernel : workload.kernels)
    planned_starts_.push_back(planned_starts_.back() + kernel.duration);
}

Bytes Transfers::FreeOnGpu() const {
  return machine_.gpu_bytes > state_.used[0] ? machine_.gpu_bytes - state_.used[0] : 0;
}

CopyQueues::Queue Transfers::QueueBack(const ExecutionPart& part) const {
  return queues_.Back(part.valid[1] ? CopyQueues::kHostOut : CopyQueues::DriveOut(part.drive));
}

// Records an event on the pieces of a part that begin in [first, last), bytes of the part. Whole tensors move
// in units over a link whose directions share, and schedules count in these.
void Transfers::Record(ScheduleEvent::Kind kind, const ExecutionPart& part, Place from, Place to, Nanos start,
                       Nanos end, Bytes first, Bytes last) {
  ScheduleEvent event{kind,
                      static_cast<uint32_t>(place_.started / kernels_),
                      part.tensor,
                      part.first_piece,
                      part.last_piece,
                      from,
                      to,
                      start,
                      end,
                      part.drive};
  if (link_ != nullptr) {
    const auto pieces = [unit = link_->unit()](Bytes bytes) {
      return static_cast<uint32_t>((bytes + unit - 1) / unit);
    };
    event.last_piece = part.first_piece + std::max(1u, pieces(last));
    event.first_piece += pieces(first);
  }
  metrics_.Happened(event);
}

// ---- Evictions.

void Transfers::PlaceAway(uint32_t t, PlanTier tier, std::optional<uint32_t> until, bool returns) {
  TensorState& tensor = state_.tensors[t];
  tensor.live = true;
  const bool fits = state_.used[1] + workload_.tensors[t].bytes <= machine_.host_bytes;
  const Place place = tier == PlanTier::kHost && fits ? Place::kHost : Place::kSsd;
  for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) {
    state_.Put(p, place);
    ExecutionPart& part = state_.parts[p];
    if (place == Place::kSsd) (void)DriveFor(&part);
    if (!until) continue;
    part.away_until = *until;
    part.returns = returns;
    part.keep_copy = true;  // until the tensor is written; evictions may need it
    headroom_.Add(0, part.away_until, -static_cast<int64_t>(part.bytes));
    QueueRead(p);
  }
  metrics_.Happened({ScheduleEvent::Kind::kInit, 0, t, 0, 0, Place::kGpu, place, 0, 0, 0});
}

void Transfers::QueueWrite(const DueWrite& write, uint64_t from, uint64_t advance) {
  ExecutionPart& part = state_.parts[write.part];
  const uint64_t needed = from + write.needed;
  queues_.Push(write.tier == PlanTier::kHost ? CopyQueues::kHostOut : CopyQueues::DriveOut(DriveFor(&part)),
               {needed - std::min(needed, advance), order_++, write.part, part.bytes,
                state_.tensors[part.tensor].content, from + write.expires});
}

void Transfers::BeginEviction(const DueDrop& due) {
  ExecutionPart& part = state_.parts[due.part];
  if (!part.valid[0]) return;  // it left in need
  const uint64_t position = place_.started - 1;
  part.away_until = position + due.away;
  part.keep_copy = due.keep_copy;
  part.returns = due.returns;
  part.read_lead = due.read_lead;
  part.drop_pending = true;
  if (part.moving_out || !PartState::ElsewhereValid(part)) return;
  // It leaves earlier than the plan counts it as away.
  headroom_.Add(place_.started, position + due.counted_from, -static_cast<int64_t>(part.bytes));
  Drop(due.part);
}

void Transfers::LeaveInNeed(uint32_t p, uint64_t until, bool returns, bool to_host) {
  ExecutionPart& part = state_.parts[p];
  part.away_until = until;
  part.returns = returns;
  part.read_lead = -1;
  part.keep_copy = false;
  headroom_.Add(place_.started, until, -static_cast<int64_t>(part.bytes));
  if (PartState::ElsewhereValid(part)) return Drop(p);
  part.drop_pending = true;
  const auto away = static_cast<uint32_t>(until - place_.started);
  QueueWrite({p, to_host ? PlanTier::kHost : PlanTier::kDisk, 0, away}, place_.started, place_.started);
}

void Transfers::Drop(uint32_t p) {
  ExecutionPart& part = state_.parts[p];
  part.drop_pending = false;
  state_.Free(p, Place::kGpu);
  Record(ScheduleEvent::Kind::kDrop, part, Place::kGpu, Place::kGpu, place_.now, place_.now, 0, part.bytes);
  if (part.returns) QueueRead(p);
}

void Transfers::QueueRead(uint32_t p) {
  ExecutionPart& part = state_.parts[p];
  if (!part.returns) return;
  const Queue queue = QueueBack(part);
  if (!queues_.IsHost(queue)) SetToCome(&part, true);
  if (prefetch_) queues_.reads(queue).push({part.away_until, p});
}

// A part keeps its drive in all iterations: these are alike, and the waits of one forecast those of the next.
uint32_t Transfers::DriveFor(ExecutionPart* part) {
  if (!part->has_drive) part->drive = static_cast<uint32_t>(queues_.loads().Pick(part->bytes));
  part->has_drive = true;
  return part->drive;
}

// Whether the part's drive still has to read it, as far as is known.
void Transfers::SetToCome(ExecutionPart* part, bool to_come) {
  if (to_come && !part->read_to_come) queues_.loads().AddRead(part->drive, part->bytes);
  if (!to_come && part->read_to_come) queues_.loads().RemoveRead(part->drive, part->bytes);
  part->read_to_come = to_come;
}

void Transfers::FreeElsewhere(uint32_t tensor) {
  for (uint32_t p = state_.tensors[tensor].first_part; p < state_.tensors[tensor].last_part; ++p)
    SetToCome(&state_.parts[p], false);
  state_.FreeAll(tensor, Place::kHost);
  state_.FreeAll(tensor, Place::kSsd);
}

// ---- Copies out.

void Transfers::StartWrites() {
  for (size_t drive = 0; drive + 1 < queues_.tiers(); ++drive) StartWritesOf(CopyQueues::DriveOut(drive));
  StartWritesOf(CopyQueues::kHostOut);
}

bool Transfers::Stale(const CopyQueues::Write& write) const {
  const ExecutionPart& part = state_.parts[write.part];
  return place_.started > write.expires || write.content != state_.tensors[part.tensor].content ||
         !part.valid[0] || PartState::ElsewhereValid(part) || part.moving_out;
}

void Transfers::StartWritesOf(Queue queue) {
  if (queues_.copy(queue).active) return;
  while (!queues_.writes(queue).empty() && Stale(queues_.writes(queue).top())) queues_.PopWrite(queue);
  if (queues_.writes(queue).empty() || queues_.RateNow(queue) == 0) return;
  const CopyQueues::Write write = queues_.writes(queue).top();
  ExecutionPart& part = state_.parts[write.part];
  if (queue == CopyQueues::kHostOut && state_.used[1] + part.bytes > machine_.host_bytes) {
    if (!place_.Waiting() || !part.drop_pending) return;
    queues_.PopWrite(queue);  // a kernel waits for its memory, and the host is full: it goes to the SSD
    const Queue drive = CopyQueues::DriveOut(DriveFor(&part));
    queues_.Push(drive, write);
    StartWritesOf(drive);
    StartWritesOf(CopyQueues::kHostOut);
    return;
  }
  // A kernel that is running may write it: its content is about to be stale.
  if (place_.running && Names(workload_.kernels[KernelOf(place_.started - 1)].outputs, part.tensor)) return;
  if (!MayBegin(queue)) return;
  queues_.PopWrite(queue);
  StartMove(queue, write.part);
}

// ---- Reads.

void Transfers::StartReads() {
  for (size_t drive = 0; drive + 1 < queues_.tiers(); ++drive)
    StartReadsOf(queues_.Back(CopyQueues::DriveOut(drive)));
  StartReadsOf(queues_.HostIn());
}

void Transfers::StartReadsOf(Queue queue) {
  if (queues_.copy(queue).active) return;
  const auto stale = [this](const CopyQueues::Read& read) {
    const ExecutionPart& part = state_.parts[read.part];
    return read.due < place_.started || read.due != part.away_until || part.valid[0] || part.moving_in ||
           !state_.tensors[part.tensor].live;
  };
  auto& waiting = queues_.reads(queue);
  while (!waiting.empty() && stale(waiting.top())) waiting.pop();
  if (queues_.RateNow(queue) == 0) return;
  if (place_.Waiting() && StartOwnRead(queue)) return;
  if (!waiting.empty()) StartQueuedRead(queue);
}

// A read that the next kernel waits for needs free memory only, no headroom.
bool Transfers::StartOwnRead(Queue queue) {
  for (uint32_t t : Next().inputs) {
    const TensorState& tensor = state_.tensors[t];
    if (!tensor.live || state_.AllOnGpu(t)) continue;
    for (uint32_t p = tensor.first_part; p < tensor.last_part; ++p) {
      const ExecutionPart& part = state_.parts[p];
      if (part.valid[0] || part.moving_in || part.moving_out) continue;
      if (queue != QueueBack(part) || part.bytes > FreeOnGpu()) continue;
      if (MayBegin(queue)) StartMove(queue, p);
      return true;
    }
  }
  return false;
}

void Transfers::StartQueuedRead(Queue queue) {
  const CopyQueues::Read read = queues_.reads(queue).top();
  if (!MayReadAhead(read)) {
    if (host_headroom_ && !queues_.IsHost(queue)) Promote(queue);
    return;
  }
  if (!MayBegin(queue)) return;
  queues_.reads(queue).pop();
  StartMove(queue, read.part);
}

// The drive is idle, and what it would read next finds no headroom on the GPU: it comes to the host.
void Transfers::Promote(Queue queue) {
  const CopyQueues::Read read = queues_.reads(queue).top();
  ExecutionPart& part = state_.parts[read.part];
  const double rate = queues_.PromotionRate(queue);
  if (rate == 0 || part.moving_out || read.due <= place_.started) return;
  if (state_.used[1] + part.bytes > machine_.host_bytes ||
      !host_headroom_->Fits(place_.Current(), read.due, part.bytes))
    return;
  queues_.reads(queue).pop();
  const Nanos end = place_.now + ToTicks(static_cast<double>(part.bytes) / rate * kNanosPerSecond +
                                         static_cast<double>(machine_.transfer_latency));
  queues_.Begin(queue, {true, read.part, end, rate, /*promotes=*/true});
  part.moving_in = true;
  ++state_.tensors[part.tensor].moves_in;
  SetToCome(&part, false);
  state_.Take(Place::kHost, part.bytes);
  host_headroom_->Add(place_.Current(), read.due, static_cast<int64_t>(part.bytes));
  metrics_.Moved(place_.now, end, part.bytes, &Traffic::ssd_to_host);
  Record(ScheduleEvent::Kind::kMove, part, Place::kSsd, Place::kHost, place_.now, end, 0, part.bytes);
}

bool Transfers::MayReadAhead(const CopyQueues::Read& read) {
  const ExecutionPart& part = state_.parts[read.part];
  if (part.moving_out) return false;
  Bytes free = FreeOnGpu();
  // The memory that the next kernel needs is not available.
  if (place_.Waiting()) free -= std::min(free, state_.SpaceFor(Next()) + state_.MissingFor(Next()));
  if (part.bytes > free) return false;
  if (read.due <= place_.started) return true;
  if (part.read_lead >= 0 && part.valid[1]) {
    const Nanos early = PlannedStart(read.due) - PlannedNow() - part.read_lead;
    if (early > 0) {
      const Nanos then = place_.now + ToTicks(static_cast<double>(early));
      if (place_.running) wake_ = wake_ == 0 ? then : std::min(wake_, then);
      return false;
    }
  }
  return headroom_.Fits(place_.Current(), read.due, part.bytes);
}

Nanos Transfers::PlannedStart(uint64_t position) const {
  return static_cast<Nanos>(position / kernels_) * planned_starts_[kernels_] +
         planned_starts_[KernelOf(position)];
}

// The job's place on the timeline without waits, which stands still while a kernel waits.
Nanos Transfers::PlannedNow() const {
  if (!place_.running) return PlannedStart(place_.started);
  const Nanos duration = workload_.kernels[KernelOf(place_.started - 1)].duration;
  return PlannedStart(place_.started - 1) + std::min(duration, place_.now - place_.kernel_start);
}

// ---- Moves.

void Transfers::StartMove(Queue queue, uint32_t p) {
  ExecutionPart& part = state_.parts[p];
  TensorState& tensor = state_.tensors[part.tensor];
  const bool out = queues_.IsOut(queue);
  const bool host = queues_.IsHost(queue);
  const double rate = queues_.RateNow(queue);
  const Nanos end = place_.now + ToTicks(static_cast<double>(part.bytes) / rate * kNanosPerSecond +
                                         static_cast<double>(machine_.transfer_latency));
  queues_.Begin(queue, {true, p, end, rate});
  (out ? part.moving_out : part.moving_in) = true;
  ++(out ? tensor.moves_out : tensor.moves_in);
  state_.Take(!out ? Place::kGpu : host ? Place::kHost : Place::kSsd, part.bytes);
  if (out && !host) SetToCome(&part, true);
  if (!out) {
    SetToCome(&part, false);
    tensor.taken_on_gpu += part.bytes;
    headroom_.Add(place_.Current(), part.away_until, static_cast<int64_t>(part.bytes));
  }
  if (link_ == nullptr) {
    Moved(queue, {0, part.bytes, place_.now, end, true});
  } else {
    link_->Begin(queue, rate, part.bytes, machine_.transfer_latency, place_.now);
  }
}

void Transfers::Moved(Queue queue, const SharedLink::Segment& segment) {
  const ExecutionPart& part = state_.parts[queues_.copy(queue).part];
  const bool out = queues_.IsOut(queue), host = queues_.IsHost(queue);
  const Place other = host ? Place::kHost : Place::kSsd;
  metrics_.Moved(segment.start, segment.end, segment.last - segment.first, out, host);
  Record(ScheduleEvent::Kind::kMove, part, out ? Place::kGpu : other, out ? other : Place::kGpu,
         segment.start, segment.end, segment.first, segment.last);
}

bool Transfers::MayBegin(Queue queue) {
  return link_ == nullptr || link_->MayBegin(queue, queues_.RateNow(queue), place_.now);
}

void Transfers::BeginRound() {
  wake_ = 0;
  if (link_ != nullptr) link_->ForgetWanted();
}

void Transfers::EndRound() {
  if (link_ != nullptr) link_->Arrange(place_.now);
}

void Transfers::Finish() {
  for (Queue queue = 0; queue < queues_.size(); ++queue) {
    if (queues_.copy(queue).active && OnLink(queue)) Moved(queue, link_->Rest(queue));
  }
}

void Transfers::EndMove(Queue queue) {
  const uint32_t p = queues_.copy(queue).part;
  const bool host = queues_.IsHost(queue), promoted = queues_.copy(queue).promotes;
  queues_.End(queue);
  ExecutionPart& part = state_.parts[p];
  TensorState& tensor = state_.tensors[part.tensor];
  if (queues_.IsOut(queue)) {
    part.moving_out = false;
    --tensor.moves_out;
    state_.SetValid(p, host ? Place::kHost : Place::kSsd);
    if (part.drop_pending) Drop(p);
    return;
  }
  part.moving_in = false;
  --tensor.moves_in;
  state_.SetValid(p, promoted ? Place::kHost : Place::kGpu);
  if (promoted) return QueueRead(p);
  // Of what was promoted, the drive still has a copy.
  if (host && (!part.keep_copy || part.valid[2])) {
    state_.Free(p, Place::kHost);
    Record(ScheduleEvent::Kind::kDrop, part, Place::kHost, Place::kHost, place_.now, place_.now, 0,
           part.bytes);
  }
}

void Transfers::EndMoves() {
  for (Queue queue = 0; queue < queues_.size(); ++queue) {
    if (!queues_.copy(queue).active || EndOf(queue) != place_.now) continue;
    if (OnLink(queue)) {
      const SharedLink::Segment segment = link_->EndSegment(queue, place_.now);
      Moved(queue, segment);
      if (!segment.ends_copy) continue;
    }
    EndMove(queue);
  }
}

Nanos Transfers::EndOf(Queue queue) const {
  return OnLink(queue) ? link_->end(queue) : queues_.copy(queue).end;
}

Nanos Transfers::NextEvent(Nanos latest) const {
  for (Queue queue = 0; queue < queues_.size(); ++queue) {
    if (queues_.copy(queue).active) latest = std::min(latest, EndOf(queue));
  }
  return wake_ != 0 && place_.running ? std::min(latest, wake_) : latest;
}

ExecutionStats::Wait Transfers::WaitOf(const WorkloadKernel& kernel) const {
  ExecutionStats::Wait wait;
  for (uint32_t t : kernel.inputs) wait.arriving |= state_.tensors[t].moves_in != 0;
  for (size_t drive = 0; drive + 1 < queues_.tiers(); ++drive) {
    const Queue out = CopyQueues::DriveOut(drive);
    const CopyQueues::Copy& read = queues_.copy(queues_.Back(out));
    wait.reading |= read.active && Names(kernel.inputs, state_.parts[read.part].tensor);
    wait.writing |= queues_.copy(out).active;
  }
  return wait;
}

}  // namespace spillway::policy
