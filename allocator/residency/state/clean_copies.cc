#include "allocator/residency/state/clean_copies.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "io/os/check.h"

namespace spillway::allocator {

void CleanCopies::Keep(const TableLock& lock, Block* block, std::vector<ExtentHome> homes,
                       const ContentHash& hash) {
  lock.Covers(*table_);
  SPILLWAY_CHECK(block->copies.copy_homes.empty() && homes.size() == block->chunks);
  Count(homes, 1);
  block->copies.copy_homes = std::move(homes);
  block->copies.content = hash;
  kept_.push_back(block);
}

bool CleanCopies::Take(const TableLock& lock, Block* block, std::vector<ExtentHome>* homes,
                       ContentHash* hash) {
  lock.Covers(*table_);
  if (block->copies.copy_homes.empty()) return false;
  Count(block->copies.copy_homes, -1);
  *homes = std::move(block->copies.copy_homes);
  *hash = block->copies.content;
  block->copies.copy_homes.clear();
  std::erase(kept_, block);
  return true;
}

void CleanCopies::Drop(const TableLock& lock, Block* block) {
  std::vector<ExtentHome> homes;
  ContentHash hash;
  if (!Take(lock, block, &homes, &hash)) return;
  Release(lock, &homes);
  block->copies.backoff.RecordUseless();
}

void CleanCopies::Reclaim(const TableLock& lock, uint64_t buffers, uint64_t slots) {
  lock.Covers(*table_);
  const bool want_host = buffers > 0;
  const bool want_disk = slots > 0;
  if ((!want_host || host_buffers_ == 0) && (!want_disk || disk_slots_ == 0)) return;
  const auto useful = [&](const Block* block) {
    return std::any_of(block->copies.copy_homes.begin(), block->copies.copy_homes.end(),
                       [&](const ExtentHome& home) { return home.on_disk() ? want_disk : want_host; });
  };
  uint64_t host = 0;
  uint64_t disk = 0;
  const auto enough = [&] { return (!want_host || host >= buffers) && (!want_disk || disk >= slots); };
  for (const bool proven : {false, true}) {
    for (size_t i = 0; i < kept_.size() && !enough();) {
      Block* const block = kept_[i];
      if (block->copies.backoff.proven() != proven || !useful(block)) {
        ++i;
        continue;
      }
      std::vector<ExtentHome> homes;
      ContentHash hash;
      Take(lock, block, &homes, &hash);  // takes it out of kept_
      for (const ExtentHome& home : homes) ++(home.on_disk() ? disk : host);
      Release(lock, &homes);
    }
  }
}

void CleanCopies::Count(const std::vector<ExtentHome>& homes, int64_t sign) {
  for (const ExtentHome& home : homes)
    (home.on_disk() ? disk_slots_ : host_buffers_) += static_cast<uint64_t>(sign);
}

void CleanCopies::Release(const TableLock& lock, std::vector<ExtentHome>* homes) {
  lock.Covers(*table_);
  for (const ExtentHome& home : *homes) {
    if (home.on_disk()) disk_->ReleaseSlot(home.slot);
  }
  if (host_ != nullptr) {
    ForEachHostRun(*homes, homes->size(), host_->buffer_bytes(), [&](size_t first, size_t count) {
      host_->Give(HostUse::kStorage, (*homes)[first].buffer, count);
    });
  }
  homes->clear();
}

}  // namespace spillway::allocator
