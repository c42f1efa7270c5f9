#include "policy/simulator/machine_blocks.h"

#include <algorithm>
#include <utility>

#include "policy/model/transfer_plan.h"

namespace spillway::policy {
namespace {

constexpr uint32_t kNowhere = ~uint32_t{0};

Place PlaceOf(PlanTier tier) { return tier == PlanTier::kHost ? Place::kHost : Place::kSsd; }

uint32_t UnitsOf(Bytes bytes) { return PiecesOf(bytes, SharedLink::kUnitOfWhole); }

}  // namespace

MachineBlocks::MachineBlocks(std::vector<Bytes> bytes, const Machine& machine, ExecutionStats* metrics)
    : bytes_(std::move(bytes)),
      machine_(machine),
      metrics_(*metrics),
      rates_({machine.pcie_out, std::min(machine.pcie_out, machine.ssd_write), machine.pcie_in,
              std::min(machine.pcie_in, machine.ssd_read)}),
      link_(machine, /*tiers=*/2),
      blocks_(bytes_.size()),
      place_on_gpu_(bytes_.size(), kNowhere) {}

// ---- A cursor's view of blocks, and its moves.

PlanBlockView MachineBlocks::ViewOf(uint32_t id, int64_t completed) const {
  const Block& block = blocks_[id];
  PlanBlockView view;
  view.live = block.live && !block.dead;
  view.tier = block.tier;
  view.bytes = view.copy_bytes = BytesOf(id);
  view.free_bytes = free();
  view.used = static_cast<LaunchIndex>(block.last_use + 1);
  view.copied = block.copy;
  if (block.on_gpu && !block.arrived) {
    view.place = PlanBlockView::Place::kArriving;
  } else if (block.leaving || block.move == Block::Move::kOut || block.move == Block::Move::kCopyWaits) {
    view.place = PlanBlockView::Place::kLeaving;
  } else if (block.move == Block::Move::kDraining) {
    view.place = PlanBlockView::Place::kDraining;
  } else if (block.on_gpu) {
    view.place = PlanBlockView::Place::kOnGpu;
    view.may_leave = view.live && block.move == Block::Move::kNone;
    view.may_copy = view.may_leave && !block.copy && block.last_write < completed;
  } else if (view.live && block.copy) {
    view.place = PlanBlockView::Place::kAway;
    view.may_return = true;
  }
  return view;
}

bool MachineBlocks::Move(PlanMove move, uint32_t block, PlanTier tier) {
  switch (move) {
    case PlanMove::kNothing: return false;
    case PlanMove::kEvict: Leave(block, tier, blocks_[block].last_use); return true;
    case PlanMove::kCopyOut: CopyOut(block, tier); return true;
    case PlanMove::kFetch: Fetch(block); return true;
  }
  return false;
}

// ---- Memory.

void MachineBlocks::TakeMemory(uint32_t block) {
  blocks_[block].on_gpu = true;
  place_on_gpu_[block] = static_cast<uint32_t>(on_gpu_.size());
  on_gpu_.push_back(block);
  used_ += BytesOf(block);
  peak_ = std::max(peak_, used_);
}

void MachineBlocks::GiveMemory(uint32_t block) {
  if (!std::exchange(blocks_[block].on_gpu, false)) return;
  blocks_[block].arrived = false;
  const uint32_t last = on_gpu_.back();
  on_gpu_[place_on_gpu_[block]] = last;
  place_on_gpu_[last] = std::exchange(place_on_gpu_[block], kNowhere);
  on_gpu_.pop_back();
  used_ -= BytesOf(block);
}

void MachineBlocks::CountAway(const Block& block, int change) {
  if (block.live && block.copy && !block.on_gpu) away_[Of(block.tier)] += static_cast<uint32_t>(change);
}

void MachineBlocks::SetCopy(uint32_t id, bool copy) {
  Block& block = blocks_[id];
  if (block.copy == copy) return;
  if (block.tier == PlanTier::kHost && !copy) host_used_ -= BytesOf(id);
  block.copy = copy;
}

// Makes the block's copy invalid. A copy that is on its way cannot stop at once, so its host memory is given
// back when it has ended (EndedOut).
void MachineBlocks::Spoil(uint32_t id) {
  Block& block = blocks_[id];
  SetCopy(id, false);
  if (block.move == Block::Move::kCopyWaits) block.move = Block::Move::kNone;
  if (block.move != Block::Move::kOut) return;
  block.move = Block::Move::kDraining;
  link_.Shorten(OutOf(block.tier), now_);
}

void MachineBlocks::StopLeaving(Block* block, uint32_t id) {
  if (std::exchange(block->leaving, false)) leaving_ -= BytesOf(id);
}

void MachineBlocks::Drop(uint32_t id) {
  Block& block = blocks_[id];
  StopLeaving(&block, id);
  GiveMemory(id);
  CountAway(block, 1);
  metrics_.Happened({ScheduleEvent::Kind::kDrop, iteration_, id, 0, UnitsOf(BytesOf(id)), Place::kGpu,
                     Place::kGpu, now_, now_, 0});
}

// ---- The job's uses and frees.

void MachineBlocks::PlaceAway(uint32_t id) {
  Block& block = blocks_[id];
  block.tier = host_used_ + BytesOf(id) <= machine_.host_bytes ? PlanTier::kHost : PlanTier::kDisk;
  if (block.tier == PlanTier::kHost) peak_host_ = host_used_ += BytesOf(id);
  block.live = block.copy = true;
  CountAway(block, 1);
  metrics_.Happened({ScheduleEvent::Kind::kInit, 0, id, 0, 0, Place::kGpu, PlaceOf(block.tier), 0, 0, 0});
}

bool MachineBlocks::Use(uint32_t id, int64_t launch, bool writes) {
  Block& block = blocks_[id];
  StopLeaving(&block, id);
  if (block.move == Block::Move::kOut || block.move == Block::Move::kCopyWaits) Spoil(id);
  const bool fresh = !block.live || block.dead;
  if (block.dead) {  // handed out again before the GPU was through with it
    std::erase(dead_, id);
    block.dead = false;
    SetCopy(id, false);
  }
  bool waits = false;
  if (!block.on_gpu) {
    CountAway(block, -1);
    TakeMemory(id);
    waits = !fresh;
    if (waits) {
      block.move = Block::Move::kIn;
      urgent_[Of(block.tier)].push_back(id);
    }
  }
  if (fresh) {
    block.live = true;
    block.arrived = block.move != Block::Move::kIn;  // else what is on its way for the last life comes first
  }
  block.last_use = launch;
  if (writes || fresh) block.last_write = launch;
  return waits;
}

void MachineBlocks::Free(uint32_t id) {
  Block& block = blocks_[id];
  if (!block.live || block.dead) return;
  CountAway(block, -1);
  StopLeaving(&block, id);
  if (block.move == Block::Move::kOut || block.move == Block::Move::kCopyWaits) Spoil(id);
  block.dead = true;
  dead_.push_back(id);
}

void MachineBlocks::ReleaseDead(int64_t completed) {
  std::erase_if(dead_, [&](uint32_t id) {
    Block& block = blocks_[id];
    if (block.move != Block::Move::kNone || completed <= block.last_use) return false;
    GiveMemory(id);
    SetCopy(id, false);
    block = Block();
    return true;
  });
}

// ---- Transfers.

void MachineBlocks::Leave(uint32_t id, PlanTier tier, int64_t wanted) {
  Block& block = blocks_[id];
  block.leaving = true;
  leaving_ += BytesOf(id);
  if (block.copy) return Drop(id);
  evictions_[Of(tier)].insert({wanted, id});
}

void MachineBlocks::CopyOut(uint32_t id, PlanTier tier) {
  blocks_[id].move = Block::Move::kCopyWaits;
  copies_[Of(tier)].push_back(id);
}

void MachineBlocks::Fetch(uint32_t id) {
  CountAway(blocks_[id], -1);
  TakeMemory(id);
  blocks_[id].move = Block::Move::kIn;
  fetches_[Of(blocks_[id].tier)].push_back(id);
}

bool MachineBlocks::Start(Nanos now) {
  now_ = now;
  bool any = false;
  link_.ForgetWanted();
  for (const PlanTier tier : {PlanTier::kHost, PlanTier::kDisk}) {
    any |= StartOut(tier, now);
    any |= StartIn(tier, now);
  }
  return any;
}

bool MachineBlocks::Begin(Queue queue, uint32_t id, Nanos now) {
  if (!link_.MayBegin(queue, rates_[queue], now)) return false;
  link_.Begin(queue, rates_[queue], BytesOf(id), machine_.transfer_latency, now);
  link_busy_[queue] = true;
  under_way_[queue] = id;
  return true;
}

bool MachineBlocks::BeginOut(uint32_t id, PlanTier tier, Nanos now) {
  if (!Begin(OutOf(tier), id, now)) return false;
  Block& block = blocks_[id];
  block.tier = tier;
  block.move = Block::Move::kOut;
  if (tier == PlanTier::kHost) peak_host_ = std::max(peak_host_, host_used_ += BytesOf(id));
  return true;
}

// Evictions go before copies of blocks that stay, since launches wait for the memory of the former.
bool MachineBlocks::StartOut(PlanTier tier, Nanos now) {
  if (link_busy_[OutOf(tier)]) return false;
  const auto full = [&](uint32_t id) {
    return tier == PlanTier::kHost && host_used_ + BytesOf(id) > machine_.host_bytes;
  };
  for (auto& waiting = evictions_[Of(tier)]; !waiting.empty();) {
    const auto [wanted, id] = *waiting.begin();
    const Block& block = blocks_[id];
    const bool goes = block.leaving && !block.copy && block.move == Block::Move::kNone;
    if (goes && !full(id)) {
      if (!BeginOut(id, tier, now)) return false;
      waiting.erase(waiting.begin());
      return true;
    }
    waiting.erase(waiting.begin());
    if (goes) evictions_[Of(PlanTier::kDisk)].insert({wanted, id});
  }
  for (auto& waiting = copies_[Of(tier)]; !waiting.empty();) {
    const uint32_t id = waiting.front();
    const bool goes = blocks_[id].move == Block::Move::kCopyWaits;  // else it was taken back
    if (goes && !full(id)) {
      if (!BeginOut(id, tier, now)) return false;
      waiting.pop_front();
      return true;
    }
    waiting.pop_front();
    if (goes) copies_[Of(PlanTier::kDisk)].push_back(id);
  }
  return false;
}

// Blocks that a launch waits for go before those that are fetched ahead.
bool MachineBlocks::StartIn(PlanTier tier, Nanos now) {
  if (link_busy_[InOf(tier)]) return false;
  for (auto* waiting : {&urgent_[Of(tier)], &fetches_[Of(tier)]}) {
    if (waiting->empty()) continue;
    const uint32_t id = waiting->front();
    if (!Begin(InOf(tier), id, now)) return false;
    waiting->pop_front();
    return true;
  }
  return false;
}

Nanos MachineBlocks::NextEvent(Nanos latest) const {
  for (Queue queue = 0; queue < kQueues; ++queue)
    if (link_busy_[queue]) latest = std::min(latest, link_.end(queue));
  return latest;
}

void MachineBlocks::Advance(Nanos now, uint32_t iteration) {
  now_ = now;
  iteration_ = iteration;
  for (Queue queue = 0; queue < kQueues; ++queue)
    if (link_busy_[queue] && link_.end(queue) <= now) Ended(queue, now);
}

void MachineBlocks::Ended(Queue queue, Nanos now) {
  const bool out = queue < 2;
  const bool host = queue % 2 == 0;
  const uint32_t id = under_way_[queue];
  const SharedLink::Segment segment = link_.EndSegment(queue, now);
  metrics_.Moved(segment.start, segment.end, segment.last - segment.first, out, host);
  const Place tier = host ? Place::kHost : Place::kSsd;
  segments_[queue].push_back({ScheduleEvent::Kind::kMove, iteration_, id,
                              static_cast<uint32_t>(segment.first / SharedLink::kUnitOfWhole),
                              UnitsOf(segment.last), out ? Place::kGpu : tier, out ? tier : Place::kGpu,
                              segment.start, segment.end, 0});
  if (!segment.ends_copy) return;
  link_busy_[queue] = false;
  // Moves of a copy that was taken back are not recorded: it is no valid copy.
  if (blocks_[id].move != Block::Move::kDraining)
    for (const ScheduleEvent& event : segments_[queue]) metrics_.Happened(event);
  segments_[queue].clear();
  if (out) return EndedOut(id);
  blocks_[id].move = Block::Move::kNone;
  blocks_[id].arrived = true;
}

void MachineBlocks::EndedOut(uint32_t id) {
  Block& block = blocks_[id];
  if (std::exchange(block.move, Block::Move::kNone) == Block::Move::kDraining) {
    if (block.tier == PlanTier::kHost) host_used_ -= BytesOf(id);
    return;
  }
  block.copy = true;
  if (block.leaving) Drop(id);
}

}  // namespace spillway::policy
