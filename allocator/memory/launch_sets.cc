#include "allocator/memory/launch_sets.h"

#include <algorithm>
#include <bit>

#include "io/os/check.h"

namespace spillway::allocator {
namespace {

template <typename Visit>
void ForEachBit(uint64_t bits, Visit visit) {
  for (; bits != 0; bits &= bits - 1) visit(std::countr_zero(bits));
}

}  // namespace

void LaunchSets::Record(const std::vector<Member>& blocks) {
  int place = 0;
  for (int i = 0; i < kSets; ++i) {
    if (sets_[i].all_bytes < sets_[place].all_bytes) place = i;
  }
  Clear(place);
  Set& set = sets_[place];
  const uint64_t bit = uint64_t{1} << place;
  for (const Member& block : blocks) {
    if (!block.live || (BitsOf(block.id) & bit) != 0) continue;
    if (block.id.index() >= bits_.size())
      bits_.resize(std::max<size_t>(block.id.index() + 1, 2 * bits_.size()));
    bits_[block.id.index()] |= bit;
    set.blocks.push_back(block.id);
    set.live_bytes += block.bytes;
    if (block.pinned) set.pinned_bytes += block.bytes;
  }
  set.all_bytes = set.live_bytes;
  FindLargest();
}

void LaunchSets::Count(BlockId id, int64_t bytes) {
  ForEachBit(BitsOf(id), [&](int place) { sets_[place].live_bytes += static_cast<uint64_t>(bytes); });
  FindLargest();
}

void LaunchSets::CountPinned(BlockId id, int64_t bytes) {
  ForEachBit(BitsOf(id), [&](int place) { sets_[place].pinned_bytes += static_cast<uint64_t>(bytes); });
}

void LaunchSets::OnDestroy(BlockId id, uint64_t bytes) {
  const uint64_t bits = BitsOf(id);
  if (bits == 0) return;
  ForEachBit(bits, [&](int place) {
    Set& set = sets_[place];
    std::erase(set.blocks, id);
    set.all_bytes -= bytes;
  });
  bits_[id.index()] = 0;
}

void LaunchSets::ForgetDead() {
  for (int place = 0; place < kSets; ++place) {
    if (sets_[place].live_bytes == 0) Clear(place);
  }
  FindLargest();
}

void LaunchSets::Clear(int place) {
  for (const BlockId id : sets_[place].blocks) bits_[id.index()] &= ~(uint64_t{1} << place);
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
  for (const Set& set : sets_) largest = std::max(largest, set.live_bytes - set.pinned_bytes);
  return largest;
}

void LaunchSets::CheckInvariants(absl::FunctionRef<Member(BlockId)> look) const {
  for (int place = 0; place < kSets; ++place) {
    uint64_t live = 0;
    uint64_t pinned = 0;
    for (const BlockId id : sets_[place].blocks) {
      SPILLWAY_CHECK((BitsOf(id) >> place & 1) != 0);
      const Member block = look(id);
      if (!block.live) continue;
      live += block.bytes;
      if (block.pinned) pinned += block.bytes;
    }
    SPILLWAY_CHECK(live == sets_[place].live_bytes && pinned == sets_[place].pinned_bytes);
  }
}

}  // namespace spillway::allocator
