#include "integration/escape/pointer_tables.h"

#include <algorithm>

namespace spillway::integration {
namespace {

// No entry is longer than a tensor map, so an entry that reaches into a range begins at most this far before
// it.
constexpr uint64_t kLongestEntry = 128;

// Entries of different origins do not share a pin, so it does not matter which of the two ends first.
int OriginOf(allocator::PinReason reason) {
  if (reason == allocator::PinReason::kModuleGlobal) return 1;
  return reason == allocator::PinReason::kDenied ? 2 : 0;
}

}  // namespace

void PointerTables::Moved(uint64_t source, uint64_t bytes, uint64_t destination,
                          std::vector<TableEntry>* out) const {
  os::MutexLock lock(&mu_);
  for (auto it = entries_.lower_bound(source); it != entries_.end() && it->first < source + bytes; ++it) {
    if (it->first + it->second.bytes > source + bytes) continue;
    out->push_back({destination + (it->first - source), it->second.bytes,
                    allocator::BlockId::FromRaw(std::get<1>(it->second.key)),
                    std::get<0>(it->second.key) == Reason::kDenied});
  }
}

bool PointerTables::Add(const std::vector<TableEntry>& entries, std::vector<PinTicket>* tickets) {
  os::MutexLock lock(&mu_);
  if (entries_.size() + entries.size() > kMaxEntries) {
    tickets->clear();
    return false;
  }
  // The pins' keys by origin, then by target.
  std::map<uint32_t, Key> keys[3];
  for (PinTicket& ticket : *tickets) {
    std::erase_if(ticket.blocks, [&](const allocator::PinnedBlock& block) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      const Key key(ticket.reason, block.id.raw(), block.generation);
      keys[OriginOf(ticket.reason)][block.id.raw()] = key;
      return counts_.try_emplace(key, 0).second;
    });
  }
  for (const TableEntry& entry : entries) {
    for (const auto& of_reason : keys) {
      const auto it = of_reason.find(entry.target.raw());
      if (it == of_reason.end() || IsKnownLocked(entry, it->second)) continue;
      ++counts_[it->second];
      entries_.emplace(entry.address, Entry{entry.bytes, it->second});
    }
  }
  SetBoundsLocked();
  return true;
}

bool PointerTables::IsKnownLocked(const TableEntry& entry, const Key& key) const {
  if (!entry.by_kernel) return false;  // the copy has overwritten what was there
  const auto [first, last] = entries_.equal_range(entry.address);
  return std::any_of(first, last, [&](const auto& known) { return known.second.key == key; });
}

void PointerTables::RemoveLocked(uint64_t address, uint64_t bytes, Change change,
                                 std::vector<PinTicket>* ended) {
  auto it = entries_.lower_bound(address < kLongestEntry ? 0 : address - kLongestEntry);
  while (it != entries_.end() && it->first < address + bytes) {
    const bool stays = change == Change::kOverwritten && std::get<0>(it->second.key) == Reason::kDenied;
    if (stays || it->first + it->second.bytes <= address) {
      ++it;
      continue;
    }
    const Key key = it->second.key;
    it = entries_.erase(it);
    const auto count = counts_.find(key);
    if (--count->second != 0) continue;
    ended->push_back({std::get<0>(key), {{allocator::BlockId::FromRaw(std::get<1>(key)), std::get<2>(key)}}});
    counts_.erase(count);
  }
}

void PointerTables::Remove(uint64_t address, uint64_t bytes, Change change, std::vector<PinTicket>* ended) {
  if (bytes == 0 || !MayOverlap(address, bytes)) return;
  os::MutexLock lock(&mu_);
  RemoveLocked(address, bytes, change, ended);
  SetBoundsLocked();
}

void PointerTables::SetBoundsLocked() {
  begin_.store(entries_.empty() ? UINT64_MAX : entries_.begin()->first, std::memory_order_release);
  end_.store(entries_.empty() ? 0 : entries_.rbegin()->first + kLongestEntry, std::memory_order_release);
}

void PointerTables::RecordGlobal(const void* module, uint64_t address, uint64_t bytes) {
  os::MutexLock lock(&mu_);
  globals_[address] = {bytes, module};
}

bool PointerTables::IsGlobal(uint64_t address) const {
  os::MutexLock lock(&mu_);
  auto it = globals_.upper_bound(address);
  if (it == globals_.begin()) return false;
  --it;
  return address < it->first + it->second.bytes;
}

void PointerTables::DropGlobals(const void* module, std::vector<PinTicket>* ended) {
  os::MutexLock lock(&mu_);
  for (auto it = globals_.begin(); it != globals_.end();) {
    if (module != nullptr && it->second.module != module) {
      ++it;
      continue;
    }
    RemoveLocked(it->first, it->second.bytes, Change::kGone, ended);
    it = globals_.erase(it);
  }
  SetBoundsLocked();
}

size_t PointerTables::entries() const {
  os::MutexLock lock(&mu_);
  return entries_.size();
}

}  // namespace spillway::integration
