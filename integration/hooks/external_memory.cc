#include "integration/hooks/external_memory.h"

#include <vector>

namespace spillway::integration {

ExternalMemory::Change ExternalMemory::AddLocked(int device, int64_t delta) {
  bytes_[device] += delta;
  return {residencies_[device], delta};
}

void ExternalMemory::Report(const Change& change) {
  if (change.residency != nullptr && change.delta != 0) change.residency->OnExternalBytes(change.delta);
}

void ExternalMemory::OnAllocate(Kind kind, uint64_t key, int device, uint64_t bytes) {
  if (!Counts(device)) return;
  Change change;
  {
    os::MutexLock lock(&mu_);
    Entry& entry = allocations_[{kind, key}];
    const int64_t before = static_cast<int64_t>(entry.bytes);  // a key seen twice: its free was not seen
    entry = {device, bytes};
    change = AddLocked(device, static_cast<int64_t>(bytes) - before);
  }
  Report(change);
}

uint64_t ExternalMemory::OnFree(Kind kind, uint64_t key) {
  Change change;
  uint64_t bytes = 0;
  {
    os::MutexLock lock(&mu_);
    const auto it = allocations_.find({kind, key});
    if (it == allocations_.end()) return 0;
    bytes = it->second.bytes;
    change = AddLocked(it->second.device, -static_cast<int64_t>(it->second.bytes));
    allocations_.erase(it);
  }
  Report(change);
  return bytes;
}

void ExternalMemory::OnCreate(CUmemGenericAllocationHandle handle, int device, uint64_t bytes) {
  if (!Counts(device)) return;
  Change change;
  {
    os::MutexLock lock(&mu_);
    physical_[handle] = Physical{{device, bytes}, 1, 0};
    change = AddLocked(device, static_cast<int64_t>(bytes));
  }
  Report(change);
}

void ExternalMemory::OnRetain(CUmemGenericAllocationHandle handle) {
  os::MutexLock lock(&mu_);
  const auto it = physical_.find(handle);
  if (it != physical_.end()) ++it->second.references;
}

ExternalMemory::Change ExternalMemory::DropUnusedLocked(CUmemGenericAllocationHandle handle) {
  const auto it = physical_.find(handle);
  if (it == physical_.end() || it->second.references > 0 || it->second.mappings > 0) return {};
  const Entry entry = it->second.entry;
  physical_.erase(it);
  return AddLocked(entry.device, -static_cast<int64_t>(entry.bytes));
}

void ExternalMemory::OnRelease(CUmemGenericAllocationHandle handle) {
  Change change;
  {
    os::MutexLock lock(&mu_);
    const auto it = physical_.find(handle);
    if (it == physical_.end()) return;
    --it->second.references;
    change = DropUnusedLocked(handle);
  }
  Report(change);
}

void ExternalMemory::OnMap(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle) {
  os::MutexLock lock(&mu_);
  const auto it = physical_.find(handle);
  if (it == physical_.end()) return;
  ++it->second.mappings;
  mappings_[address] = {bytes, handle};
}

void ExternalMemory::OnUnmap(CUdeviceptr address, uint64_t bytes) {
  std::vector<Change> changes;
  {
    os::MutexLock lock(&mu_);
    for (auto it = mappings_.lower_bound(address); it != mappings_.end() && it->first < address + bytes;) {
      const CUmemGenericAllocationHandle handle = it->second.handle;
      it = mappings_.erase(it);
      --physical_[handle].mappings;
      changes.push_back(DropUnusedLocked(handle));
    }
  }
  for (const Change& change : changes) Report(change);
}

void ExternalMemory::ForgetDevice(int device) {
  if (!Counts(device)) return;
  Change change;
  {
    os::MutexLock lock(&mu_);
    std::erase_if(allocations_, [device](const auto& row) { return row.second.device == device; });
    std::erase_if(mappings_, [this, device](const auto& row) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return physical_[row.second.handle].entry.device == device;
    });
    std::erase_if(physical_, [device](const auto& row) { return row.second.entry.device == device; });
    change = AddLocked(device, -bytes_[device]);
  }
  Report(change);
}

void ExternalMemory::Attach(int device, allocator::Residency* residency) {
  Change change;
  {
    os::MutexLock lock(&mu_);
    residencies_[device] = residency;
    change = {residency, bytes_[device]};
  }
  Report(change);
}

int64_t ExternalMemory::bytes(int device) const {
  os::MutexLock lock(&mu_);
  return bytes_[device];
}

}  // namespace spillway::integration
