// AddressSpace, third part: allocations whose pages lie in a file that other processes open.
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

using WriteLock = std::unique_lock<std::shared_mutex>;
using ReadLock = std::shared_lock<std::shared_mutex>;

constexpr uint64_t kGuard = 4096;  // behind an allocation, as Allocate leaves it

bool WriteAll(int descriptor, uint64_t start, uint64_t size) {
  const DeviceRights rights;
  for (uint64_t at = 0; at < size;) {
    const ssize_t written =
        pwrite(descriptor, reinterpret_cast<const void*>(start + at), size - at, static_cast<off_t>(at));
    if (written <= 0) return false;
    at += static_cast<uint64_t>(written);
  }
  return true;
}

bool IsSame(const IpcFile& a, const IpcFile& b) { return a.process == b.process && a.id == b.id; }

}  // namespace

bool AddressSpace::IsShared(uint64_t start) {
  ReadLock lock(mutex_);
  return shared_.contains(start);
}

CUresult AddressSpace::Share(uint64_t start, IpcFile* file) {
  WriteLock lock(mutex_);
  const auto it = mappings_.find(start);
  if (it == mappings_.end() || it->second.physical != nullptr || it->second.kind != AllocationKind::kPlain)
    return CUDA_ERROR_INVALID_VALUE;
  if (const auto shared = shared_.find(start); shared != shared_.end()) {
    *file = shared->second;
    return CUDA_SUCCESS;
  }
  if (!MakeIpcFile(IpcKind::kMemory, it->second.size, file)) return CUDA_ERROR_OUT_OF_MEMORY;
  file->device = it->second.device->ordinal();
  if (!WriteAll(file->descriptor, start, it->second.size) ||
      !pool_.PopulateFrom(file->descriptor, start, it->second.size)) {
    close(file->descriptor);
    return CUDA_ERROR_MAP_FAILED;
  }
  shared_.emplace(start, *file);
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Import(const IpcFile& file, Device* device, void* context, uint64_t* start) {
  WriteLock lock(mutex_);
  for (auto& [at, imported] : imported_) {
    if (!IsSame(imported.file, file) || mappings_.at(at).context != context) continue;
    ++imported.references;
    *start = at;
    return CUDA_SUCCESS;
  }
  return MapImportLocked(file, device, context, start);
}

CUresult AddressSpace::MapImportLocked(const IpcFile& file, Device* device, void* context, uint64_t* start) {
  const int descriptor = OpenIpcFile(IpcKind::kMemory, file);
  if (descriptor < 0) return CUDA_ERROR_INVALID_HANDLE;
  *start = addresses_.Take(file.bytes + kGuard, file.bytes >= kHugePage ? kHugePage : kGuard);
  const bool mapped = *start != 0 && pool_.PopulateFrom(descriptor, *start, file.bytes);
  close(descriptor);
  if (!mapped) {
    if (*start != 0) addresses_.Give(*start, file.bytes + kGuard);
    return CUDA_ERROR_MAP_FAILED;
  }
  Mapping mapping;
  mapping.start = *start;
  mapping.size = file.bytes;
  mapping.device = device;
  mapping.context = context;
  mapping.kind = AllocationKind::kImported;
  mapping.accessible = true;
  mapping.access_mask = 1u << device->ordinal();
  mapping.id = next_id_++;
  mappings_.emplace(*start, mapping);
  imported_.emplace(*start, Imported{file});
  return CUDA_SUCCESS;
}

bool AddressSpace::FindImport(uint64_t start, Mapping* allocation, bool* last) {
  ReadLock lock(mutex_);
  const auto imported = imported_.find(start);
  if (imported == imported_.end()) return false;
  *allocation = mappings_.at(start);
  *last = imported->second.references == 1;
  return true;
}

CUresult AddressSpace::CloseImport(uint64_t start) {
  WriteLock lock(mutex_);
  const auto imported = imported_.find(start);
  if (imported == imported_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--imported->second.references == 0) FreeLocked(mappings_.find(start));
  return CUDA_SUCCESS;
}

}  // namespace simcuda
