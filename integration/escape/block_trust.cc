#include "integration/escape/block_trust.h"

#include <bit>

namespace spillway::integration {

BlockTrust::BlockTrust()
    : unproven_(new std::atomic<uint32_t>[kBits]()),
      tags_(new Tag[kTags]),
      pages_(new std::atomic<Page*>[allocator::kMaxDevices * kPages]()) {}

BlockTrust::~BlockTrust() {
  for (size_t i = 0; i < allocator::kMaxDevices * kPages; ++i) delete pages_[i].load();
}

void BlockTrust::CountTag(uint64_t tag) {
  if (tag == 0) tag = 1;
  for (size_t probe = 0, at = (tag >> 20) % kTags; probe < kTags; ++probe, at = (at + 1) % kTags) {
    Tag& entry = tags_[at];
    uint64_t seen = entry.tag.load(std::memory_order_acquire);
    if (seen == 0) {
      // Count the function before its entry can be seen, so that no thread uncounts it first.
      unproven_[tag % kBits].fetch_add(1);
      if (entry.tag.compare_exchange_strong(seen, tag)) return;
      unproven_[tag % kBits].fetch_sub(1);
    }
    if (seen != tag) continue;
    if (!entry.repeated.load(std::memory_order_relaxed) && !entry.repeated.exchange(true)) {
      unproven_[tag % kBits].fetch_sub(1);
    }
    return;
  }
  unproven_[tag % kBits].fetch_add(1);  // the table is full: this function is never proven
}

BlockTrust::Record& BlockTrust::RecordOf(allocator::BlockId block) {
  std::atomic<Page*>& place = pages_[block.device() * kPages + block.index() / kPageBlocks % kPages];
  Page* page = place.load(std::memory_order_acquire);
  if (page == nullptr) {
    os::MutexLock lock(&mu_);
    page = place.load(std::memory_order_relaxed);
    if (page == nullptr) {
      page = new Page;
      place.store(page, std::memory_order_release);
    }
  }
  return (*page)[block.index() % kPageBlocks];
}

const BlockTrust::Record* BlockTrust::Find(allocator::BlockId block) const {
  const Page* const page =
      pages_[block.device() * kPages + block.index() / kPageBlocks % kPages].load(std::memory_order_acquire);
  return page == nullptr ? nullptr : &(*page)[block.index() % kPageBlocks];
}

void BlockTrust::RecordLaunch(uint64_t tag, const allocator::AccessSet& set) {
  CountTag(tag);
  const size_t bit = (tag == 0 ? 1 : tag) % kBits;
  const uint64_t mask = uint64_t{1} << (bit % 64);
  for (const allocator::BlockId id : set) {
    std::atomic<uint64_t>& word = RecordOf(id).users[bit / 64];
    if ((word.load(std::memory_order_relaxed) & mask) == 0) word.fetch_or(mask);
  }
}

void BlockTrust::RecordInStruct(const allocator::AccessSet& set) {
  for (const allocator::BlockId id : set) RecordOf(id).in_struct.store(true);
}

void BlockTrust::Forget(allocator::BlockId block) {
  Record& record = RecordOf(block);
  record.in_struct.store(false);
  for (std::atomic<uint64_t>& word : record.users) word.store(0);
}

bool BlockTrust::MayLeave(allocator::BlockId block) const {
  const Record* const record = Find(block);
  if (record == nullptr) return true;  // no kernel has named it
  if (record->in_struct.load()) return false;
  for (size_t i = 0; i < record->users.size(); ++i) {
    for (uint64_t word = record->users[i].load(); word != 0; word &= word - 1) {
      if (unproven_[i * 64 + std::countr_zero(word)].load() != 0) return false;
    }
  }
  return true;
}

}  // namespace spillway::integration
