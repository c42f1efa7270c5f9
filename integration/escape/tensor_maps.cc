#include "integration/escape/tensor_maps.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace spillway::integration {
namespace {

uint64_t HashOf(const void* content) {
  const uint64_t hash = XXH3_64bits(content, TensorMaps::kBytes);
  return hash != 0 ? hash : 1;
}

bool IsInUse(const allocator::AddressMap& addresses, const TensorMaps::Range& range) {
  allocator::AccessSet set;
  addresses.CollectRange(range.address, range.bytes, &set);
  return !set.empty();
}

}  // namespace

TensorMaps::TensorMaps() = default;
TensorMaps::~TensorMaps() { delete[] sets_.load(); }

bool TensorMaps::Read(const Entry& entry, uint64_t hash, Range* range) {
  for (;;) {
    const uint64_t before = entry.version.load(std::memory_order_acquire);
    if (entry.hash.load(std::memory_order_acquire) != hash) return false;
    range->address = entry.address.load(std::memory_order_acquire);
    range->bytes = entry.bytes.load(std::memory_order_acquire);
    // The loads above are acquire, so this one comes after them.
    if ((before & 1) == 0 && entry.version.load(std::memory_order_relaxed) == before) return true;
  }
}

void TensorMaps::Write(Entry* entry, uint64_t hash, const Range& range) {
  const uint64_t version = entry->version.load(std::memory_order_relaxed);
  entry->version.store(version + 1, std::memory_order_relaxed);
  entry->hash.store(hash, std::memory_order_release);
  entry->address.store(range.address, std::memory_order_release);
  entry->bytes.store(range.bytes, std::memory_order_release);
  entry->version.store(version + 2, std::memory_order_release);
}

bool TensorMaps::Record(const void* content, const Range& range, const allocator::AddressMap& addresses) {
  const uint64_t hash = HashOf(content);
  os::MutexLock lock(&mu_);
  Set* sets = sets_.load(std::memory_order_relaxed);
  if (sets == nullptr) {
    sets = new Set[kSets];
    sets_.store(sets, std::memory_order_release);
  }
  Entry* place = nullptr;
  for (Entry& entry : sets[hash % kSets]) {
    const uint64_t known = entry.hash.load(std::memory_order_relaxed);
    if (known == hash) {
      place = &entry;
      break;
    }
    const Range old{entry.address.load(std::memory_order_relaxed),
                    entry.bytes.load(std::memory_order_relaxed)};
    if (place == nullptr && (known == 0 || !IsInUse(addresses, old))) place = &entry;
  }
  if (place == nullptr) return false;
  Write(place, hash, range);
  any_.store(true, std::memory_order_release);
  return true;
}

TensorMaps::Range TensorMaps::Find(const void* content) const {
  const Set* const sets = sets_.load(std::memory_order_acquire);
  if (sets == nullptr) return {};
  const uint64_t hash = HashOf(content);
  Range range;
  for (const Entry& entry : sets[hash % kSets]) {
    if (Read(entry, hash, &range)) return range;
  }
  return {};
}

void TensorMaps::Scan(const void* bytes, size_t size, const allocator::AddressMap& addresses,
                      allocator::AccessSet* set) const {
  const char* const first = static_cast<const char*>(bytes);
  for (size_t at = 0; at + kBytes <= size; at += kAlignment) {
    const Range range = Find(first + at);
    if (range.bytes != 0) addresses.CollectRange(range.address, range.bytes, set);
  }
}

}  // namespace spillway::integration
