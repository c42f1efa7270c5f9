#include "integration/simcuda/driver/memory/address_space.h"

#include <cstdio>
#include <ctime>
#include <iterator>
#include <mutex>

#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/core/settings.h"

namespace simcuda {
namespace {

using WriteLock = std::unique_lock<std::shared_mutex>;
using ReadLock = std::shared_lock<std::shared_mutex>;

bool IsMultiple(uint64_t value, uint64_t unit) { return (value & (unit - 1)) == 0; }

uint64_t Granularity() { return static_cast<uint64_t>(GetSettings().granularity.load()); }

Touch TouchOf(unsigned access_mask) {
  return (access_mask & kHostAccess) != 0 ? Touch::kAnybody : Touch::kDevice;
}

}  // namespace

AddressSpace& GetAddressSpace() {
  static AddressSpace* space =
      new AddressSpace;  // never destroyed: stream threads outlive static destructors
  return *space;
}

bool AddressSpace::Init() {
  WriteLock lock(mutex_);
  if (!pool_.Init()) return false;
  addresses_.Reset(pool_.visible_start(), pool_.visible_size());
  return true;
}

CUresult AddressSpace::Reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t* start) {
  const uint64_t granularity = Granularity();
  if (size == 0 || !IsMultiple(size, granularity)) return CUDA_ERROR_INVALID_VALUE;
  if (alignment != 0 && (alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  // Huge pages need the alignment of huge pages, whatever the granularity.
  const uint64_t least = granularity > (2u << 20) ? granularity : (2u << 20);
  if (alignment < least) alignment = least;
  WriteLock lock(mutex_);
  const bool hinted = hint != 0 && IsMultiple(hint, alignment) && GetSettings().address_hints.load() != 0;
  if (hinted && !pool_.Contains(hint) && pool_.AddHinted(hint, size)) addresses_.Give(hint, size);
  const bool at_hint = hinted && addresses_.TakeAt(hint, size);
  *start = at_hint ? hint : addresses_.Take(size, alignment);
  if (*start == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations_[*start] = size;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::FreeReservation(uint64_t start, uint64_t size) {
  WriteLock lock(mutex_);
  const auto it = reservations_.find(start);
  if (it == reservations_.end() || it->second != size) return CUDA_ERROR_INVALID_VALUE;
  const auto inside = mappings_.lower_bound(start);
  if (inside != mappings_.end() && inside->first < start + size) return CUDA_ERROR_INVALID_VALUE;
  pool_.Depopulate(start, size);  // pages that mode report let in
  RememberLocked(start, size, "its reservation was freed");
  reservations_.erase(it);
  addresses_.Give(start, size);
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Create(uint64_t size, const CUmemAllocationProp& properties, Device* device,
                              uint64_t* handle) {
  if (size == 0 || !IsMultiple(size, Granularity())) return CUDA_ERROR_INVALID_VALUE;
  if (device != nullptr && !device->Charge(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  WriteLock lock(mutex_);
  const uint64_t home = device != nullptr ? pool_.TakeHome(size) : pool_.TakeHostPlace(size);
  if (home == 0) {
    if (device != nullptr) device->Uncharge(size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Physical physical;
  physical.id = next_id_++;
  physical.size = size;
  physical.home = home;
  physical.device = device;
  physical.properties = properties;
  *handle = physical.id;
  physical_.emplace(physical.id, physical);
  return CUDA_SUCCESS;
}

void AddressSpace::DropIfUnusedLocked(Physical* physical) {
  if (physical->references > 0 || physical->mappings > 0) return;
  if (physical->device != nullptr) {
    pool_.GiveHome(physical->home, physical->size);
    physical->device->UnchargeHandle(physical->size);
  } else {
    pool_.GiveHostPlace(physical->home, physical->size);
  }
  physical_.erase(physical->id);
}

CUresult AddressSpace::Release(uint64_t handle) {
  WriteLock lock(mutex_);
  const auto it = physical_.find(handle);
  if (it == physical_.end() || it->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
  --it->second.references;
  DropIfUnusedLocked(&it->second);
  return CUDA_SUCCESS;
}

bool AddressSpace::IsHandle(uint64_t handle) {
  ReadLock lock(mutex_);
  const auto it = physical_.find(handle);
  return it != physical_.end() && it->second.references != 0;
}

CUresult AddressSpace::Retain(uint64_t address, uint64_t* handle) {
  WriteLock lock(mutex_);
  const Mapping* mapping = FindMappingLocked(address);
  if (mapping == nullptr || mapping->physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ++mapping->physical->references;
  *handle = mapping->physical->id;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::RetainHandle(uint64_t handle) {
  WriteLock lock(mutex_);
  const auto it = physical_.find(handle);
  if (it == physical_.end()) return CUDA_ERROR_INVALID_VALUE;
  ++it->second.references;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::GetProperties(uint64_t handle, CUmemAllocationProp* properties) {
  ReadLock lock(mutex_);
  const auto it = physical_.find(handle);
  if (it == physical_.end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = it->second.properties;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Map(uint64_t start, uint64_t size, uint64_t offset, uint64_t handle) {
  const uint64_t granularity = Granularity();
  if (offset != 0 || size == 0 || !IsMultiple(size, granularity) || !IsMultiple(start, granularity)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  WriteLock lock(mutex_);
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
  Physical& physical = found->second;
  if (size > physical.size) return CUDA_ERROR_INVALID_VALUE;
  auto reservation = reservations_.upper_bound(start);
  if (reservation == reservations_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --reservation;
  if (start + size > reservation->first + reservation->second) return CUDA_ERROR_INVALID_VALUE;
  const auto next = mappings_.lower_bound(start);
  if (next != mappings_.end() && next->first < start + size) return CUDA_ERROR_INVALID_VALUE;
  if (FindMappingLocked(start) != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (physical.device != nullptr && physical.mappings > 0)
    return CUDA_ERROR_NOT_SUPPORTED;  // anonymous pages have one place
  ++physical.mappings;
  Mapping mapping;
  mapping.start = start;
  mapping.size = size;
  mapping.physical = &physical;
  mapping.device = physical.device;
  mapping.id = next_id_++;
  mappings_.emplace(start, mapping);
  return CUDA_SUCCESS;
}

CUresult AddressSpace::CheckWholeLocked(uint64_t start, uint64_t size) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t at = start;
  for (auto it = mappings_.find(start); at < start + size; ++it) {
    if (it == mappings_.end() || it->first != at || it->second.physical == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    at += it->second.size;
  }
  return at == start + size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult AddressSpace::CheckUnmap(uint64_t start, uint64_t size) {
  ReadLock lock(mutex_);
  return CheckWholeLocked(start, size);
}

uint64_t AddressSpace::CountMappings(uint64_t start, uint64_t size) {
  ReadLock lock(mutex_);
  return static_cast<uint64_t>(
      std::distance(mappings_.lower_bound(start), mappings_.lower_bound(start + size)));
}

void AddressSpace::CloseLocked(Mapping& mapping) {
  if (!mapping.accessible) return;
  mapping.accessible = false;
  if (mapping.physical->device == nullptr) return pool_.Depopulate(mapping.start, mapping.size);
  if (pool_.MoveOut(mapping.start, mapping.physical->home, mapping.size)) return;
  std::fprintf(stderr, "simcuda: the kernel refused to move memory at 0x%llx; raise vm.max_map_count\n",
               static_cast<unsigned long long>(mapping.start));
  std::abort();
}

void AddressSpace::UnmapOneLocked(Mapping& mapping) {
  Physical* physical = mapping.physical;
  CloseLocked(mapping);
  // Bytes of host memory are somebody's copy: they stay from mapping to mapping, as on hardware.
  if (GetSettings().poison_now() == Poison::kUnmap && physical->device != nullptr) physical->stale = true;
  --physical->mappings;
  DropIfUnusedLocked(physical);
}

CUresult AddressSpace::Unmap(uint64_t start, uint64_t size) {
  WriteLock lock(mutex_);
  if (CUresult result = CheckWholeLocked(start, size); result != CUDA_SUCCESS) return result;
  for (auto it = mappings_.find(start); it != mappings_.end() && it->first < start + size;) {
    UnmapOneLocked(it->second);
    it = mappings_.erase(it);
  }
  RememberLocked(start, size, "it was unmapped");
  return CUDA_SUCCESS;
}

CUresult AddressSpace::MakeAccessibleLocked(Mapping& mapping, std::vector<StalePart>* stale) {
  if (mapping.accessible) return CUDA_SUCCESS;
  Physical* physical = mapping.physical;
  const bool in =
      physical->device != nullptr
          ? pool_.MoveIn(physical->home, mapping.start, mapping.size, Touch::kDevice)
          : pool_.MapHostPlace(physical->home, mapping.start, mapping.size, TouchOf(mapping.access_mask));
  if (!in) return CUDA_ERROR_OUT_OF_MEMORY;
  if (physical->stale) stale->push_back({mapping.start, mapping.size});
  physical->stale = false;
  mapping.accessible = true;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::SetAccessLocked(uint64_t start, uint64_t size, unsigned device_mask, bool accessible,
                                       std::vector<StalePart>* stale) {
  if (CUresult result = CheckWholeLocked(start, size); result != CUDA_SUCCESS) return result;
  for (auto it = mappings_.find(start); it != mappings_.end() && it->first < start + size; ++it) {
    Mapping& mapping = it->second;
    const Touch before = TouchOf(mapping.access_mask);
    mapping.access_mask = accessible ? mapping.access_mask | device_mask : mapping.access_mask & ~device_mask;
    if (mapping.access_mask == 0 || TouchOf(mapping.access_mask) != before) CloseLocked(mapping);
    if (mapping.access_mask == 0) continue;
    if (CUresult result = MakeAccessibleLocked(mapping, stale); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult AddressSpace::SetAccess(uint64_t start, uint64_t size, unsigned device_mask, bool accessible) {
  std::vector<StalePart> stale;
  CUresult result = CUDA_SUCCESS;
  {
    WriteLock lock(mutex_);
    result = SetAccessLocked(start, size, device_mask, accessible, &stale);
  }
  // Filling takes long, and nobody may use the range before this call returns: not under the lock.
  if (GetSettings().poison_now() != Poison::kOff) {
    for (const StalePart& part : stale) FillWithPoison(part.start, part.size);
  }
  return result;
}

CUresult AddressSpace::GetAccess(uint64_t address, unsigned* device_mask) {
  ReadLock lock(mutex_);
  const Mapping* mapping = FindMappingLocked(address);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device_mask = mapping->access_mask;
  return CUDA_SUCCESS;
}

Mapping* AddressSpace::FindMappingLocked(uint64_t address) {
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return nullptr;
  --it;
  return address - it->first < it->second.size ? &it->second : nullptr;
}

AddressInfo AddressSpace::FindLocked(uint64_t address) {
  AddressInfo info;
  if (const Mapping* mapping = FindMappingLocked(address)) {
    info.mapped = true;
    info.mapping = *mapping;
  }
  auto it = reservations_.upper_bound(address);
  if (it != reservations_.begin() && address - std::prev(it)->first < std::prev(it)->second) {
    info.reserved = true;
    info.reservation_start = std::prev(it)->first;
    info.reservation_size = std::prev(it)->second;
  }
  return info;
}

AddressInfo AddressSpace::Find(uint64_t address) {
  if (!pool_.Contains(address)) return AddressInfo{};
  ReadLock lock(mutex_);
  return FindLocked(address);
}

bool AddressSpace::FindFromSignal(uint64_t address, AddressInfo* info) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    if (mutex_.try_lock_shared()) {
      *info = FindLocked(address);
      mutex_.unlock_shared();
      return true;
    }
    SleepUntil(NowNs() + 1'000'000);
  }
  return false;
}

uint64_t AddressSpace::HostBytesFrom(uint64_t address, uint64_t* end) {
  *end = address;
  if (!pool_.Contains(address)) return 0;
  ReadLock lock(mutex_);
  uint64_t bytes = 0;
  while (const Mapping* const mapping = FindMappingLocked(*end)) {
    const uint64_t rest = mapping->start + mapping->size - *end;
    if (mapping->device == nullptr) bytes += rest;
    *end += rest;
  }
  return bytes;
}

uint64_t AddressSpace::FirstInaccessible(uint64_t start, uint64_t size) {
  ReadLock lock(mutex_);
  for (uint64_t at = start; at < start + size;) {
    const Mapping* mapping = FindMappingLocked(at);
    if (mapping == nullptr || !mapping->accessible) return at;
    at = mapping->start + mapping->size;
  }
  return 0;
}

}  // namespace simcuda
