#include "allocator/residency/state/block_table.h"

#include <cstdio>
#include <cstdlib>

#include "allocator/memory/test_points.h"
#include "io/os/check.h"
#include "io/os/log.h"

namespace spillway::allocator {
namespace {

uint64_t BytesOf(const Block& block) { return block.gate.bytes.load(std::memory_order_relaxed); }

}  // namespace

// ---- States.

namespace {

constexpr uint8_t Bit(BlockState state) { return static_cast<uint8_t>(1u << static_cast<int>(state)); }

// One row per state to move from; its bits are the states that the block may move to.
constexpr uint8_t kLegal[kBlockStates] = {
    /* kFree */ Bit(BlockState::kEmpty),
    /* kEmpty */ Bit(BlockState::kResident) | Bit(BlockState::kFree),
    /* kResident */ Bit(BlockState::kEvicting) | Bit(BlockState::kEmpty) | Bit(BlockState::kCached),
    /* kEvicting */ Bit(BlockState::kSpilled) | Bit(BlockState::kResident) | Bit(BlockState::kCached) |
        Bit(BlockState::kFree),
    /* kSpilled */ Bit(BlockState::kFaulting) | Bit(BlockState::kEmpty) | Bit(BlockState::kFree),
    /* kFaulting */ Bit(BlockState::kResident) | Bit(BlockState::kSpilled) | Bit(BlockState::kCached),
    /* kCached */ Bit(BlockState::kResident) | Bit(BlockState::kFree),
};

}  // namespace

const char* NameOf(BlockState state) {
  static constexpr const char* kNames[kBlockStates] = {"kFree",    "kEmpty",    "kResident", "kEvicting",
                                                       "kSpilled", "kFaulting", "kCached"};
  return kNames[static_cast<int>(state)];
}

bool CanTransition(BlockState from, BlockState to) { return (kLegal[static_cast<int>(from)] & Bit(to)) != 0; }

// ---- The table.

BlockTable::BlockTable(int device, AddressMap* addresses)
    : device_(device), addresses_(addresses), pages_(new os::Atomic<Block*>[kPages]()) {}

BlockTable::~BlockTable() {
  for (uint32_t i = 0; i < kPages; ++i) delete[] pages_[i].load();
}

Block* BlockTable::CreateLocked(const TableLock& lock, uint64_t address, uint32_t chunks) {
  uint32_t index;
  if (!free_indices_.empty()) {
    index = free_indices_.back();
    free_indices_.pop_back();
  } else {
    index = next_index_++;
    const uint32_t page = index / kPageBlocks;
    SPILLWAY_CHECK(page < kPages);
    if (pages_[page].load(std::memory_order_relaxed) == nullptr) {
      pages_[page].store(new Block[kPageBlocks], std::memory_order_release);
    }
  }
  const BlockId id(device_, index);
  Block& block = at(id);
  block.id = id;
  block.address = address;
  block.chunks = chunks;
  block.gate.bytes.store(chunks * addresses_->chunk_bytes(), std::memory_order_relaxed);
  block.eviction.failures = 0;
  block.copies.backoff = CopyBackoff();
  block.copies.written_unseen = false;
  Link(&block);
  addresses_->Assign(address, chunks * addresses_->chunk_bytes(), id);
  return &block;
}

void BlockTable::DestroyLocked(const TableLock& lock, Block* block) {
  SPILLWAY_CHECK(block->state == BlockState::kFree && !block->has_chunks() && !block->allocation.listed &&
                 block->copies.copy_homes.empty() && block->pins == 0 && block->eviction.job == nullptr &&
                 block->fetch.job == nullptr && !block->memory.mapping && !block->allocation.freed &&
                 !block->allocation.wanted);
  addresses_->Clear(block->address, block->chunks * addresses_->chunk_bytes());
  launch_sets_.OnDestroy(block->id, BytesOf(*block));
  Unlink(block);
  block->chunks = 0;
  free_indices_.push_back(block->id.index());
}

Gate BlockTable::GateOf(const Block& block) {
  switch (block.state) {
    case BlockState::kResident:
      if (!block.memory.reached.empty()) return Gate::kClosed;
      return block.paused() && !SPILLWAY_MUTANT(kPausedGateOpen) ? Gate::kClosed : Gate::kOpen;
    // A freed block is still mapped, so a launch with a stale pointer to it may pass.
    case BlockState::kCached: return Gate::kOpen;
    case BlockState::kFree: return Gate::kIgnored;
    default: return Gate::kClosed;
  }
}

void BlockTable::MoveLocked(const TableLock& lock, Block* block, BlockState to) {
  if (!CanTransition(block->state, to)) {
    char text[160];
    std::snprintf(text, sizeof(text), "illegal move of block %u at 0x%llx from %s to %s", block->id.raw(),
                  static_cast<unsigned long long>(block->address), NameOf(block->state), NameOf(to));
    os::ReportFatal(text);
    std::abort();
  }
  SPILLWAY_COUNT(kMove, static_cast<int>(block->state) * kBlockStates + static_cast<int>(to));
  LeaveVictims(block);
  Unlink(block);
  block->state = to;
  if (to == BlockState::kCached) block->eviction.failures = 0;  // its bytes need no place any more
  ++block->table.moves;
  Link(block);
  EnterVictim(block);
  RestoreGateLocked(lock, block);
}

bool BlockTable::CancelEvictionLocked(const TableLock& lock, Block* block) {
  EvictionState* const eviction = block->eviction.job;
  if (eviction == nullptr || eviction->cancelled) return true;
  if (eviction->committed && !SPILLWAY_MUTANT(kCancelLate)) return false;
  eviction->cancelled = true;
  if (eviction->decommit) {
    RestoreGateLocked(lock, block);
  } else if (!block->allocation.freed) {
    MoveLocked(lock, block, BlockState::kResident);
  }
  return true;
}

void BlockTable::Link(Block* block) {
  List& list = lists_[static_cast<int>(block->state)];
  block->table.next = nullptr;
  block->table.previous = list.last;
  (list.last == nullptr ? list.first : list.last->table.next) = block;
  list.last = block;
  ++list.count;
  list.chunks += block->chunks;
}

void BlockTable::Unlink(Block* block) {
  List& list = lists_[static_cast<int>(block->state)];
  (block->table.previous == nullptr ? list.first : block->table.previous->table.next) = block->table.next;
  (block->table.next == nullptr ? list.last : block->table.next->table.previous) = block->table.previous;
  block->table.previous = block->table.next = nullptr;
  --list.count;
  list.chunks -= block->chunks;
}

void BlockTable::EnterVictim(Block* block) {
  if (block->state == BlockState::kCached) {
    victims.cached.Add(KeyOf(*block));
  } else if (block->state == BlockState::kResident && block->pin_reasons == 0) {
    (block->used_since_hand_out() ? victims.idle : victims.unused).Add(KeyOf(*block));
  }
}

void BlockTable::LeaveVictims(Block* block) {
  if (block->state == BlockState::kCached) {
    victims.cached.Remove(KeyOf(*block));
  } else if (block->state == BlockState::kResident) {
    victims.unused.Remove(KeyOf(*block));
    victims.idle.Remove(KeyOf(*block));
  }
}

Block* BlockTable::FindLocked(const TableLock& lock, uint64_t address) const {
  const BlockId id = addresses_->Find(address);
  return id.valid() && id.device() == device_ ? &at(id) : nullptr;
}

void BlockTable::AddPinLocked(const TableLock& lock, Block* block, PinReason reason, uint64_t launches) {
  ++block->table.long_pins[static_cast<int>(reason)];
  if (block->pin_reasons == 0) {
    paused_chunks_ -= PausedChunksOf(*block);
    pinned_chunks_ += block->chunks;
    unpinned_sizes_.Remove(block->chunks);
    launch_sets_.OnPinned(block->id, BytesOf(*block));
    LeaveVictims(block);
  }
  block->pin_reasons |= 1u << static_cast<int>(reason);
  // An unused block is decommitted without a copy. A block with a pin may be written without a launch, so it
  // counts as used.
  block->gate.used.store(true, std::memory_order_relaxed);
  uint64_t seen = block->gate.last_use.load(std::memory_order_relaxed);
  while (seen < launches + 1 && !block->gate.last_use.compare_exchange_weak(seen, launches + 1)) {
  }
}

void BlockTable::EndPinLocked(const TableLock& lock, Block* block, PinReason reason) {
  uint32_t& long_pins = block->table.long_pins[static_cast<int>(reason)];
  if (long_pins == 0 || --long_pins != 0) return;
  block->pin_reasons &= ~(1u << static_cast<int>(reason));
  if (block->pin_reasons != 0) return;
  RecordUnpinned(block);
  paused_chunks_ += PausedChunksOf(*block);
}

void BlockTable::RecordUnpinned(Block* block) {
  pinned_chunks_ -= block->chunks;
  unpinned_sizes_.Add(block->chunks);
  launch_sets_.OnUnpinned(block->id, BytesOf(*block));
  EnterVictim(block);
}

void BlockTable::RecordHandedOutLocked(const TableLock& lock, Block* block) {
  unpinned_sizes_.Add(block->chunks);
  launch_sets_.OnHandOut(block->id, BytesOf(*block));
  if (__builtin_expect(!pause_new_, 1) || SPILLWAY_MUTANT(kNewBlocksUnpaused)) return;
  block->pause.no_bytes = true;
  PauseLocked(lock, block, PausedBy::kOutside);
}

void BlockTable::RecordFreedLocked(const TableLock& lock, Block* block) {
  if (!SPILLWAY_MUTANT(kFreeStaysPaused)) ChangePause(block, 0);
  unpinned_sizes_.Remove(block->chunks);
  launch_sets_.OnFree(block->id, BytesOf(*block));
}

void BlockTable::ForgetPinsLocked(const TableLock& lock, Block* block) {
  const bool pinned = block->pin_reasons != 0;
  block->pin_reasons = 0;
  block->table.long_pins.fill(0);
  if (!pinned) return;
  RecordUnpinned(block);
  paused_chunks_ += PausedChunksOf(*block);
}

void BlockTable::PauseLocked(const TableLock& lock, Block* block, PausedBy by) {
  ChangePause(block, block->pause.by | static_cast<uint8_t>(by));
  RestoreGateLocked(lock, block);
}

void BlockTable::ResumeLocked(const TableLock& lock, Block* block, PausedBy by) {
  ChangePause(block, block->pause.by & ~static_cast<unsigned>(by));
  // A decommit under way keeps the gate closed. The gate is opened when the decommit is taken back.
  const bool decommit = block->eviction.job != nullptr && !block->eviction.job->cancelled;
  if (!decommit || SPILLWAY_MUTANT(kResumeOpensGate)) RestoreGateLocked(lock, block);
}

void BlockTable::ChangePause(Block* block, uint8_t by) {
  paused_chunks_ -= PausedChunksOf(*block);
  block->pause.by = by;
  if (by == 0) block->pause.no_bytes = false;
  paused_chunks_ += PausedChunksOf(*block);
}

void BlockTable::CheckInvariantsLocked(const TableLock& lock) const {
  uint64_t pinned = 0;
  uint64_t paused = 0;
  uint64_t reached = 0;
  std::array<size_t, kBlockStates> counts = {};
  for (uint32_t i = 1; i < next_index_; ++i) {
    const Block& block = at(BlockId(device_, i));
    if (block.chunks == 0) continue;
    ++counts[static_cast<size_t>(block.state)];
    if (block.live() && block.pin_reasons != 0) pinned += block.chunks;
    SPILLWAY_CHECK(block.live() || !block.paused());
    paused += PausedChunksOf(block);
    const bool resident = block.state == BlockState::kResident;
    SPILLWAY_CHECK(victims.cached.Contains(i) == (block.state == BlockState::kCached));
    SPILLWAY_CHECK((victims.unused.Contains(i) || victims.idle.Contains(i)) ==
                   (resident && block.pin_reasons == 0));
    reached += block.memory.reached.size();
    const bool in_host = std::ranges::all_of(block.copies.homes, &ExtentHome::in_host);
    const bool away = block.state == BlockState::kSpilled || block.state == BlockState::kFaulting;
    SPILLWAY_CHECK(!block.memory.soft || (away && in_host));
    const bool whole = ChunksOf(block.memory.handles) == block.device_chunks();
    SPILLWAY_CHECK(block.copies.copy_homes.empty() || (block.state == BlockState::kResident && block.live()));
    switch (block.state) {
      case BlockState::kFree:
      case BlockState::kEmpty:
        SPILLWAY_CHECK((!block.has_chunks() || block.memory.mapping) && block.copies.homes.empty());
        break;
      case BlockState::kResident:
      case BlockState::kCached:
        SPILLWAY_CHECK(whole && block.copies.homes.empty() && block.fetch.job == nullptr);
        break;
      case BlockState::kEvicting: SPILLWAY_CHECK(whole && block.eviction.job != nullptr); break;
      case BlockState::kSpilled:
        SPILLWAY_CHECK((!block.has_chunks() || block.memory.mapping) &&
                       block.copies.homes.size() == block.chunks);
        break;
      case BlockState::kFaulting: SPILLWAY_CHECK(whole && block.fetch.job != nullptr); break;
    }
    SPILLWAY_CHECK(block.gate.state.load() == Gate::kClosed || block.gate.state.load() == GateOf(block));
  }
  SPILLWAY_CHECK(pinned == pinned_chunks_);
  SPILLWAY_CHECK(paused == paused_chunks_);
  SPILLWAY_CHECK(reached == reached_extents);
  for (int state = 0; state < kBlockStates; ++state)
    SPILLWAY_CHECK(counts[static_cast<size_t>(state)] == lists_[state].count);
  launch_sets_.CheckInvariants([this](BlockId id) {
    const Block& block = at(id);
    return LaunchSets::Member{id, BytesOf(block), block.live(), block.pin_reasons != 0};
  });
}

}  // namespace spillway::allocator
