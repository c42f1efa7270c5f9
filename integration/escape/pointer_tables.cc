#include "integration/escape/pointer_tables.h"

#include <algorithm>

namespace spillway::integration {
namespace {

// No slot is longer than a tensor map: how far before a range one may begin that reaches into it.
constexpr uint64_t kLongestSlot = 128;

}  // namespace

void PointerTables::Moved(uint64_t source, uint64_t bytes, uint64_t destination,
                          std::vector<TableSlot>* out) const {
  os::MutexLock lock(&mu_);
  for (auto it = slots_.lower_bound(source); it != slots_.end() && it->first < source + bytes; ++it) {
    if (it->first + it->second.bytes > source + bytes) continue;
    out->push_back({destination + (it->first - source), it->second.bytes,
                    allocator::BlockId::FromRaw(std::get<1>(it->second.key))});
  }
}

bool PointerTables::Add(const std::vector<TableSlot>& slots, std::vector<HoldTicket>* tickets) {
  os::MutexLock lock(&mu_);
  if (slots_.size() + slots.size() > kMostSlots) {
    tickets->clear();
    return false;
  }
  // By target: its key for a slot in a global, and for one elsewhere.
  std::map<uint32_t, Key> keys[2];
  for (HoldTicket& ticket : *tickets) {
    std::erase_if(ticket.blocks, [&](const allocator::HeldBlock& block) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      const Key key(ticket.reason, block.id.raw(), block.generation);
      keys[ticket.reason == Reason::kModuleGlobal ? 1 : 0][block.id.raw()] = key;
      return counts_.try_emplace(key, 0).second;
    });
  }
  for (const TableSlot& slot : slots) {
    for (const auto& of_reason : keys) {
      const auto it = of_reason.find(slot.target.raw());
      if (it == of_reason.end()) continue;
      ++counts_[it->second];
      slots_.emplace(slot.address, Slot{slot.bytes, it->second});
    }
  }
  SetBoundsLocked();
  return true;
}

void PointerTables::RemoveLocked(uint64_t address, uint64_t bytes, std::vector<HoldTicket>* ended) {
  auto it = slots_.lower_bound(address < kLongestSlot ? 0 : address - kLongestSlot);
  while (it != slots_.end() && it->first < address + bytes) {
    if (it->first + it->second.bytes <= address) {
      ++it;
      continue;
    }
    const Key key = it->second.key;
    it = slots_.erase(it);
    const auto count = counts_.find(key);
    if (--count->second != 0) continue;
    ended->push_back({std::get<0>(key), {{allocator::BlockId::FromRaw(std::get<1>(key)), std::get<2>(key)}}});
    counts_.erase(count);
  }
}

void PointerTables::Remove(uint64_t address, uint64_t bytes, std::vector<HoldTicket>* ended) {
  if (bytes == 0 || !MayTouch(address, bytes)) return;
  os::MutexLock lock(&mu_);
  RemoveLocked(address, bytes, ended);
  SetBoundsLocked();
}

void PointerTables::SetBoundsLocked() {
  begin_.store(slots_.empty() ? UINT64_MAX : slots_.begin()->first, std::memory_order_release);
  end_.store(slots_.empty() ? 0 : slots_.rbegin()->first + kLongestSlot, std::memory_order_release);
}

void PointerTables::NoteGlobal(const void* module, uint64_t address, uint64_t bytes) {
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

void PointerTables::DropGlobals(const void* module, std::vector<HoldTicket>* ended) {
  os::MutexLock lock(&mu_);
  for (auto it = globals_.begin(); it != globals_.end();) {
    if (module != nullptr && it->second.module != module) {
      ++it;
      continue;
    }
    RemoveLocked(it->first, it->second.bytes, ended);
    it = globals_.erase(it);
  }
  SetBoundsLocked();
}

size_t PointerTables::slots() const {
  os::MutexLock lock(&mu_);
  return slots_.size();
}

}  // namespace spillway::integration
