// ClaimQueue, second part: a set that does not fit the GPU is reached in part where it lies.
#include <algorithm>

#include "allocator/residency/transfer/claim_queue.h"
#include "io/os/clock.h"

namespace spillway::allocator {
namespace {

// Longest wait of a launch for blocks that could be whole on the GPU instead of reached. Their uses may wait
// for something that this thread does next.
constexpr int64_t kHomecomingNanos = 1'000'000'000;

}  // namespace

std::vector<Reach::Part> ClaimQueue::ChooseReachedLocked(const TableLock& lock, const AccessSet& set,
                                                         const Ticket& ticket, KernelPasses passes,
                                                         Lack* lack) {
  if (!reach_->on() || lack->blocks.empty()) return {};
  const uint64_t chunks = ChunksOfLocked(set);
  const uint64_t target = charges_->chunks(lock).target();
  const uint64_t reaches = std::max(ticket.reaches, chunks - std::min(chunks, target));
  if (reaches <= lack->reached) return {};
  std::vector<Reach::Part> parts = Reach::ChooseLocked(lock, lack->blocks, reaches - lack->reached, passes);
  for (const Reach::Part& part : parts) {
    const auto at = std::ranges::find(lack->blocks, part.block) - lack->blocks.begin();
    lack->claimed[static_cast<size_t>(at)] -= part.extents;
    lack->chunks -= part.extents;
  }
  return parts;
}

std::vector<Block*> ClaimQueue::ToComeHomeLocked(const TableLock& lock, const AccessSet& set,
                                                 const Ticket& ticket) {
  std::vector<Block*> blocks;
  const bool fits = ticket.reaches == 0 && ChunksOfLocked(set) <= charges_->chunks(lock).target();
  if (!fits || !core_->evict.load()) return blocks;
  const int64_t since = ticket.homecoming_since;
  if (since != 0 && os::Clock::System()->NowNanos() - since > kHomecomingNanos) return blocks;
  for (BlockId id : set) {
    Block* const block = &core_->table.at(id);
    // A block that could not leave lately is reached once more where it is.
    const bool may_leave =
        block->pin_reasons == 0 && block->eviction.failures == 0 && core_->MayLeave(*block);
    if (block->live() && may_leave && !block->memory.reached.empty()) blocks.push_back(block);
  }
  return blocks;
}

bool ClaimQueue::AwaitsHomecomingLocked(const TableLock& lock, const AccessSet& set, Ticket* ticket) {
  if (!reach_->on()) return false;
  const std::vector<Block*> blocks = ToComeHomeLocked(lock, set, *ticket);
  std::vector<Block*> leave;
  for (Block* const block : blocks) {
    const bool free = block->pins == 0 && block->eviction.job == nullptr && !block->memory.mapping;
    if (free && block->state == BlockState::kResident) leave.push_back(block);
  }
  if (!leave.empty()) leave_(lock, leave);
  if (blocks.empty()) {
    ticket->homecoming_since = 0;
    return false;
  }
  if (ticket->homecoming_since == 0) ticket->homecoming_since = os::Clock::System()->NowNanos();
  wake_();
  return true;
}

bool ClaimQueue::waits_unheard(const TableLock& lock) const {
  lock.Covers(core_->table);
  return !queue_.empty() && (queue_.front()->host_wanted > 0 || queue_.front()->homecoming_since != 0);
}

bool ClaimQueue::ReachMoreLocked(const TableLock& lock) {
  lock.Covers(core_->table);
  if (!reach_->on() || queue_.empty()) return false;
  Ticket* const head = queue_.front();
  const uint64_t available = charges_->chunks(lock).available();
  if (head->needed <= available) return false;
  head->reaches = head->reached + head->needed - available;
  core_->table.changed.NotifyAll();
  return true;
}

uint64_t ClaimQueue::HostWantedLocked(const TableLock& lock) const {
  lock.Covers(core_->table);
  return queue_.empty() ? 0 : queue_.front()->host_wanted;
}

bool ClaimQueue::ReachesLocked(const TableLock& lock, const Block& block, size_t extent) const {
  lock.Covers(core_->table);
  if (queue_.empty()) return false;
  const std::vector<Reach::Part>& parts = queue_.front()->parts;
  const auto part = std::ranges::find(parts, &block, &Reach::Part::block);
  return part != parts.end() && extent >= block.chunks - part->extents;
}

// Whether the set fits the GPU and the host tier together.
bool ClaimQueue::FitsWithReachLocked(const TableLock& lock, const AccessSet& set) const {
  const uint64_t chunks = ChunksOfLocked(set);
  return chunks * core_->chunk_bytes <=
         charges_->chunks(lock).target() * core_->chunk_bytes + charges_->reachable_bytes(lock);
}

}  // namespace spillway::allocator
