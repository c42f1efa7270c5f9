// AddressSpace, second part: plain allocations (cuMemAlloc), and records of addresses that are gone.
#include <unistd.h>

#include <cstdio>
#include <mutex>

#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

using WriteLock = std::unique_lock<std::shared_mutex>;
using ReadLock = std::shared_lock<std::shared_mutex>;

}  // namespace

CUresult AddressSpace::Allocate(uint64_t size, Device* device, void* context, AllocationKind kind,
                                uint64_t* start) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > pool_.visible_size()) return CUDA_ERROR_OUT_OF_MEMORY;
  // Whole pages, so that a freed allocation can be made inaccessible; one page more stays free as a guard.
  const uint64_t rounded = (size + kPage - 1) & ~(kPage - 1);
  const uint64_t charged = kind == AllocationKind::kPlain ? rounded : 0;
  if (!device->Charge(charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  WriteLock lock(mutex_);
  *start = addresses_.Take(rounded + kPage, rounded >= kHugePage ? kHugePage : kPage);
  if (*start == 0 || !pool_.Populate(*start, rounded)) {
    if (*start != 0) addresses_.Give(*start, rounded + kPage);
    *start = 0;
    device->Uncharge(charged);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Mapping mapping;
  mapping.start = *start;
  mapping.size = rounded;
  mapping.device = device;
  mapping.context = context;
  mapping.kind = kind;
  mapping.accessible = true;
  mapping.access_mask = 1u << device->ordinal();
  mapping.id = next_id_++;
  mappings_.emplace(*start, mapping);
  lock.unlock();
  const bool starts_as_anything = kind == AllocationKind::kPlain;  // variables start as zero
  if (starts_as_anything && GetSettings().poison_now() != Poison::kOff) FillWithPoison(*start, rounded);
  return CUDA_SUCCESS;
}

bool AddressSpace::FindAllocation(uint64_t start, Mapping* allocation) {
  ReadLock lock(mutex_);
  const auto it = mappings_.find(start);
  if (it == mappings_.end() || it->second.physical != nullptr || it->second.kind != AllocationKind::kPlain)
    return false;
  *allocation = it->second;
  return true;
}

void AddressSpace::FreeLocked(std::map<uint64_t, Mapping>::iterator it) {
  const Mapping mapping = it->second;
  mappings_.erase(it);
  pool_.Depopulate(mapping.start, mapping.size + kPage);
  if (const auto shared = shared_.find(mapping.start); shared != shared_.end()) {
    close(shared->second.descriptor);  // who has it open keeps the memory
    shared_.erase(shared);
  }
  imported_.erase(mapping.start);
  addresses_.Give(mapping.start, mapping.size + kPage);
  if (mapping.kind == AllocationKind::kPlain) mapping.device->Uncharge(mapping.size);
  RememberLocked(mapping.start, mapping.size, "it was freed");
}

CUresult AddressSpace::Free(uint64_t start) {
  WriteLock lock(mutex_);
  const auto it = mappings_.find(start);
  if (it == mappings_.end() || it->second.physical != nullptr) return CUDA_ERROR_INVALID_VALUE;
  FreeLocked(it);
  return CUDA_SUCCESS;
}

void AddressSpace::FreeAllOf(void* context) {
  WriteLock lock(mutex_);
  for (auto it = mappings_.begin(); it != mappings_.end();) {
    const auto next = std::next(it);
    const Mapping& mapping = it->second;
    if (mapping.physical == nullptr && mapping.kind != AllocationKind::kModule && mapping.context == context)
      FreeLocked(it);
    it = next;
  }
}

bool AddressSpace::LetIn(uint64_t address) {
  const uint64_t page = address & ~(kPage - 1);
  if (!pool_.Populate(page, kPage)) return false;
  FillWithPoison(page, kPage);
  return true;
}

void AddressSpace::RememberLocked(uint64_t start, uint64_t size, const char* how) {
  Gone& gone = gone_[gone_count_++ % kRemembered];
  gone = {start, size, NowNs(), how};
}

void AddressSpace::History(uint64_t address, char* line, size_t bytes) {
  line[0] = '\0';
  ReadLock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (uint64_t i = 0; i < kRemembered && i < gone_count_; ++i) {
    const Gone& gone = gone_[(gone_count_ - 1 - i) % kRemembered];
    if (address - gone.start >= gone.size) continue;
    std::snprintf(line, bytes, "; %s %.3f ms ago as part of [0x%llx, +%llu)", gone.how,
                  static_cast<double>(NowNs() - gone.when_ns) / 1e6,
                  static_cast<unsigned long long>(gone.start), static_cast<unsigned long long>(gone.size));
    return;
  }
}

}  // namespace simcuda
