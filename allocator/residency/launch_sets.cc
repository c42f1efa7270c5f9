#include "allocator/residency/launch_sets.h"

#include <algorithm>
#include <bit>

#include "allocator/residency/block_table.h"
#include "io/os/check.h"

namespace spillway::allocator {
namespace {

uint64_t BytesOf(const Block& block) { return block.bytes.load(std::memory_order_relaxed); }

template <typename Visit>
void ForEachBit(uint64_t bits, Visit visit) {
  for (; bits != 0; bits &= bits - 1) visit(std::countr_zero(bits));
}

}  // namespace

void LaunchSets::Note(const std::vector<Block*>& blocks) {
  int place = 0;
  for (int i = 0; i < kSets; ++i) {
    if (sets_[i].all_bytes < sets_[place].all_bytes) place = i;
  }
  Clear(place);
  Set& set = sets_[place];
  const uint64_t bit = uint64_t{1} << place;
  for (Block* block : blocks) {
    if (!block->live() || (block->launch_sets & bit) != 0) continue;
    block->launch_sets |= bit;
    set.blocks.push_back(block);
    set.live_bytes += BytesOf(*block);
    if (block->held_reasons != 0) set.held_bytes += BytesOf(*block);
  }
  set.all_bytes = set.live_bytes;
  FindLargest();
}

void LaunchSets::Count(Block* block, int sign) {
  if (block->launch_sets == 0) return;
  ForEachBit(block->launch_sets, [&](int place) { sets_[place].live_bytes += sign * BytesOf(*block); });
  FindLargest();
}

void LaunchSets::CountHeld(Block* block, int sign) {
  ForEachBit(block->launch_sets, [&](int place) { sets_[place].held_bytes += sign * BytesOf(*block); });
}

void LaunchSets::OnDestroy(Block* block) {
  ForEachBit(block->launch_sets, [&](int place) {
    Set& set = sets_[place];
    std::erase(set.blocks, block);
    set.all_bytes -= BytesOf(*block);
  });
  block->launch_sets = 0;
}

void LaunchSets::ForgetDead() {
  for (int place = 0; place < kSets; ++place) {
    if (sets_[place].live_bytes == 0) Clear(place);
  }
  FindLargest();
}

void LaunchSets::Clear(int place) {
  for (Block* block : sets_[place].blocks) block->launch_sets &= ~(uint64_t{1} << place);
  sets_[place] = Set();
}

void LaunchSets::FindLargest() {
  uint64_t largest = 0;
  for (const Set& set : sets_) largest = std::max(largest, set.live_bytes);
  largest_.store(largest, std::memory_order_relaxed);
  peak_ = std::max(peak_, largest);
}

uint64_t LaunchSets::largest_movable_bytes() const {
  uint64_t largest = 0;
  for (const Set& set : sets_) largest = std::max(largest, set.live_bytes - set.held_bytes);
  return largest;
}

void LaunchSets::CheckInvariants() const {
  for (int place = 0; place < kSets; ++place) {
    uint64_t live = 0;
    uint64_t held = 0;
    for (const Block* block : sets_[place].blocks) {
      SPILLWAY_CHECK((block->launch_sets >> place & 1) != 0);
      if (!block->live()) continue;
      live += BytesOf(*block);
      if (block->held_reasons != 0) held += BytesOf(*block);
    }
    SPILLWAY_CHECK(live == sets_[place].live_bytes && held == sets_[place].held_bytes);
  }
}

}  // namespace spillway::allocator
