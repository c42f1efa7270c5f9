#include "allocator/residency/state/free_addresses.h"

#include <algorithm>
#include <optional>

#include "allocator/memory/address_map.h"
#include "allocator/memory/test_points.h"
#include "io/os/check.h"

namespace spillway::allocator {

FreeAddresses::FreeAddresses(const ResidencyOptions& options, const ResidencyParts& parts, BlockTable* table)
    : table_(table),
      most_kept_(options.kept_addresses),
      space_(parts.addresses->device_base(options.device), parts.addresses->bytes_per_device(),
             parts.addresses->chunk_bytes()) {
  // At least one address is kept, so that a free keeps its own block: its caller goes on with the record.
  SPILLWAY_CHECK(most_kept_ >= 1);
}

// ---- Handing out.

Block* FreeAddresses::Take(const TableLock& lock, uint32_t chunks, CUstream stream) {
  lock.Covers(*table_);
  const std::optional<BlockId> id = listed_.Take(stream, chunks);
  if (!id) return nullptr;
  Block* const block = &table_->at(*id);
  block->allocation.listed = false;
  return block;
}

absl::StatusOr<Block*> FreeAddresses::Create(const TableLock& lock, uint32_t chunks, CUstream stream) {
  lock.Covers(*table_);
  absl::StatusOr<uint64_t> address = space_.Allocate(chunks);
  if (!address.ok()) {
    // Kept addresses are a convenience, so those without chunks are given back before an allocation fails.
    table_->ForEachLocked(lock, BlockState::kFree, [&](Block* kept) {
      lock.Covers(*table_);
      GiveUp(lock, kept);
    });
    address = space_.Allocate(chunks);
  }
  if (!address.ok()) return address.status();
  Block* const block = table_->CreateLocked(lock, *address, chunks);
  block->allocation.owner = stream;
  return block;
}

// ---- Coming back.

void FreeAddresses::Enter(Block* block) {
  block->allocation.listed = true;
  listed_.Add(block->allocation.owner, block->chunks, block->address, block->id);
}

void FreeAddresses::List(const TableLock& lock, Block* block) {
  lock.Covers(*table_);
  Enter(block);
}

void FreeAddresses::BeginFree(const TableLock& lock, Block* block) {
  lock.Covers(*table_);
  block->allocation.freed = true;
  if (block->allocation.recorded.empty()) Enter(block);
}

void FreeAddresses::FinishFree(const TableLock& lock, Block* block) {
  block->allocation.freed = false;
  Offer(lock, block);
}

void FreeAddresses::Offer(const TableLock& lock, Block* block) {
  lock.Covers(*table_);
  if (block->state == BlockState::kCached && !block->allocation.recorded.empty()) {
    waiting_.push_back(block);
    return;
  }
  block->allocation.recorded.clear();
  if (!block->allocation.listed && !block->allocation.wanted) Enter(block);
  GiveUpOld(lock);
}

bool FreeAddresses::FinishRecorded(const TableLock& lock,
                                   absl::FunctionRef<bool(const TimelineValue&)> done) {
  lock.Covers(*table_);
  bool progress = false;
  std::erase_if(waiting_, [&](Block* block) {
    lock.Covers(*table_);
    for (const TimelineValue& value : block->allocation.recorded) {
      if (!done(value)) return false;
    }
    block->allocation.recorded.clear();
    Enter(block);
    progress = true;
    return true;
  });
  return progress;
}

void FreeAddresses::GiveUpOld(const TableLock& lock) {
  const size_t kept = table_->CountLocked(lock, BlockState::kFree);
  if (kept <= most_kept_) return;
  // Each free adds one address at most. It gives up two at most, so its time is bounded and the number still
  // falls.
  const size_t most = most_kept_ + 4 * handed_out_;
  for (size_t i = most; i < std::min(kept, most + 2); ++i) {
    if (!GiveUp(lock, table_->OldestLocked(lock, BlockState::kFree))) return;
  }
}

bool FreeAddresses::GiveUp(const TableLock& lock, Block* block) {
  const bool busy = block->eviction.job != nullptr || block->memory.mapping || block->pins > 0 ||
                    block->allocation.wanted || block->allocation.freed;
  if (busy && !SPILLWAY_MUTANT(kReuseRecordEarly)) return false;
  if (block->allocation.listed) listed_.Remove(block->allocation.owner, block->chunks, block->address);
  block->allocation.listed = false;
  space_.Free(block->address, block->chunks);
  table_->DestroyLocked(lock, block);
  return true;
}

void FreeAddresses::CheckInvariants(const TableLock& lock) const {
  lock.Covers(*table_);
  space_.CheckInvariants();
}

}  // namespace spillway::allocator
