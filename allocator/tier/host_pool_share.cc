// What other processes of the node leave of host memory, and what is given back to them. All but the interface
// runs on the pinning thread.

#include <algorithm>
#include <iterator>
#include <utility>

#include "allocator/tier/host_pool_state.h"
#include "allocator/tier/pinned_slab.h"

namespace spillway::allocator {

// What of `bytes` storage may take.
uint64_t HostPool::State::StorageOf(uint64_t bytes) const {
  const uint64_t limit = kinds[static_cast<int>(HostUse::kStorage)].limit * options.buffer_bytes;
  const uint64_t no_storage = std::min(bytes, staging_bytes + kept_bytes);
  return std::min(limit, (bytes - no_storage) / options.buffer_bytes * options.buffer_bytes);
}

void HostPool::State::LookAtPeersLocked() {
  io::NodeShare* const share = options.share;
  share->Look();
  fair_cap = StorageOf(share->MostToTake(options.shared_bytes));
  const bool asks = wanted > capacity.load() && capacity.load() < fair_cap;
  share->Want(asks ? staging_bytes + kept_bytes + std::min(wanted, fair_cap) : 0);
  if (capacity.load() > fair_cap && kept_bytes == 0) {
    ChooseLeavingLocked();
  } else if (leaving_slabs.load() > 0) {
    TakeBackLocked();
  }
  // Slabs that leave are pinned until they are gone: nothing else can be in their place.
  const uint64_t available = StorageOf(share->AvailableNow(options.shared_bytes));
  const uint64_t leaving = std::min(available, LeavingBytesLocked());
  cap.store(std::min(available, std::max(capacity.load(), available - leaving)));
  pinned.NotifyAll();  // what may be had has changed
}

// The emptiest slabs first: least has to move.
void HostPool::State::ChooseLeavingLocked() {
  while (capacity.load() > fair_cap) {
    Slabs::value_type* emptiest = nullptr;
    size_t most_free = 0;
    for (Slabs::value_type& slab : slabs) {
      if (slab.second.leaves) continue;
      const size_t free = KindOf(HostUse::kStorage).free.CountIn(slab.first, slab.second.buffers);
      if (emptiest == nullptr || free > most_free) emptiest = &slab, most_free = free;
    }
    if (emptiest == nullptr || !StartLeavingLocked(emptiest)) return;
  }
}

// False when what was promised does not fit without the slab. The capacity falls before the last look: who
// promises looks at it again afterwards. It does not fall where that is known to be in vain, for a promise that
// meets it then is refused.
bool HostPool::State::StartLeavingLocked(Slabs::value_type* slab) {
  const uint64_t bytes = slab->second.buffers * options.buffer_bytes;
  const uint64_t after = capacity.load() - bytes;
  const uint64_t more = after > fair_cap ? after - fair_cap : 0;
  if (fits != nullptr && !fits(bytes, more)) return false;
  capacity.fetch_sub(bytes);
  if (fits != nullptr && !fits(0, more)) {
    capacity.fetch_add(bytes);
    return false;
  }
  slab->second.leaves = true;
  KindOf(HostUse::kStorage).free.Remove(slab->first, slab->second.buffers, &slab->second.free);
  leaving_slabs.fetch_add(1);
  return true;
}

// The others need less than they seemed to: slabs that still have bytes stay after all. So do those that the
// driver would not let go. One that is being read may not get new bytes yet.
void HostPool::State::TakeBackLocked() {
  for (auto& [start, slab] : slabs) {
    const uint64_t bytes = slab.buffers * options.buffer_bytes;
    if (!slab.leaves || slab.readers > 0) continue;
    if (kept_bytes == 0 && capacity.load() + bytes > fair_cap) continue;
    for (std::byte* const buffer : slab.free) KindOf(HostUse::kStorage).free.Give(buffer, 1);
    slab.free.clear();
    slab.leaves = false;
    leaving_slabs.fetch_sub(1);
    capacity.fetch_add(bytes);
  }
}

// Gives one empty slab back to the system. False when there is none. Where the driver does not let one go, it
// is lost, and no other is tried: each would be of no use to anybody.
bool HostPool::State::UnpinNextLocked() {
  if (kept_bytes > 0) return false;
  const auto empty = std::find_if(slabs.begin(), slabs.end(), [](const auto& entry) {
    return entry.second.leaves && entry.second.readers == 0 &&
           entry.second.free.size() == entry.second.buffers;
  });
  if (empty == slabs.end()) return false;
  std::byte* const start = empty->first;
  const size_t buffers = empty->second.buffers;
  const uint64_t bytes = buffers * options.buffer_bytes;
  KindOf(HostUse::kStorage).created -= buffers;
  slabs.erase(empty);
  leaving_slabs.fetch_sub(1);
  mu.Unlock();
  const bool unpinned = UnpinSlab(driver, context, start, bytes);
  mu.Lock();
  if (unpinned) {
    options.share->Register(options.share->taken() - bytes, options.shared_bytes);
  } else {
    kept_bytes += bytes;
    KindOf(HostUse::kStorage).limit -= buffers;
  }
  return true;
}

HostPool::State::Slabs::value_type* HostPool::State::SlabOf(const std::byte* buffer) {
  auto next = slabs.upper_bound(const_cast<std::byte*>(buffer));
  return next == slabs.begin() ? nullptr : &*std::prev(next);
}

void HostPool::SetFits(std::function<bool(uint64_t less, uint64_t more)> fits) {
  os::MutexLock lock(&state_->mu);
  state_->fits = std::move(fits);
}

bool HostPool::gives_back() const { return state_->leaving_slabs.load() > 0; }

uint64_t HostPool::storage_due_bytes() const {
  os::MutexLock lock(&state_->mu);
  return std::max(state_->fair_cap, state_->cap.load());
}

bool HostPool::Leaves(const std::byte* buffer) const {
  os::MutexLock lock(&state_->mu);
  const auto* const slab = state_->SlabOf(buffer);
  return slab != nullptr && slab->second.leaves;
}

void HostPool::BeginRead(const std::byte* buffer) {
  os::MutexLock lock(&state_->mu);
  ++state_->SlabOf(buffer)->second.readers;
}

void HostPool::EndRead(const std::byte* buffer) {
  os::MutexLock lock(&state_->mu);
  --state_->SlabOf(buffer)->second.readers;
}

}  // namespace spillway::allocator
