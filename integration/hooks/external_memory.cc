#include "integration/hooks/external_memory.h"

#include <vector>

namespace spillway::integration {

ForeignLedger::Change ForeignLedger::AddLocked(int device, int64_t delta) {
  bytes_[device] += delta;
  return {residencies_[device], delta};
}

void ForeignLedger::Tell(const Change& change) {
  if (change.residency != nullptr && change.delta != 0) change.residency->OnForeignBytes(change.delta);
}

void ForeignLedger::OnAllocate(Kind kind, uint64_t key, int device, uint64_t bytes) {
  if (!Counts(device)) return;
  Change change;
  {
    os::MutexLock lock(&mu_);
    Entry& entry = allocations_[{kind, key}];
    const int64_t before = static_cast<int64_t>(entry.bytes);  // a key seen twice: its free escaped us
    entry = {device, bytes};
    change = AddLocked(device, static_cast<int64_t>(bytes) - before);
  }
  Tell(change);
}

uint64_t ForeignLedger::OnFree(Kind kind, uint64_t key) {
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
  Tell(change);
  return bytes;
}

void ForeignLedger::OnCreate(CUmemGenericAllocationHandle handle, int device, uint64_t bytes) {
  if (!Counts(device)) return;
  Change change;
  {
    os::MutexLock lock(&mu_);
    physical_[handle] = Physical{{device, bytes}, 1, 0};
    change = AddLocked(device, static_cast<int64_t>(bytes));
  }
  Tell(change);
}

void ForeignLedger::OnRetain(CUmemGenericAllocationHandle handle) {
  os::MutexLock lock(&mu_);
  const auto it = physical_.find(handle);
  if (it != physical_.end()) ++it->second.references;
}

ForeignLedger::Change ForeignLedger::DropUnusedLocked(CUmemGenericAllocationHandle handle) {
  const auto it = physical_.find(handle);
  if (it == physical_.end() || it->second.references > 0 || it->second.mappings > 0) return {};
  const Entry entry = it->second.entry;
  physical_.erase(it);
  return AddLocked(entry.device, -static_cast<int64_t>(entry.bytes));
}

void ForeignLedger::OnRelease(CUmemGenericAllocationHandle handle) {
  Change change;
  {
    os::MutexLock lock(&mu_);
    const auto it = physical_.find(handle);
    if (it == physical_.end()) return;
    --it->second.references;
    change = DropUnusedLocked(handle);
  }
  Tell(change);
}

void ForeignLedger::OnMap(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle) {
  os::MutexLock lock(&mu_);
  const auto it = physical_.find(handle);
  if (it == physical_.end()) return;
  ++it->second.mappings;
  mappings_[address] = {bytes, handle};
}

void ForeignLedger::OnUnmap(CUdeviceptr address, uint64_t bytes) {
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
  for (const Change& change : changes) Tell(change);
}

void ForeignLedger::ForgetDevice(int device) {
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
  Tell(change);
}

void ForeignLedger::Attach(int device, allocator::Residency* residency) {
  Change change;
  {
    os::MutexLock lock(&mu_);
    residencies_[device] = residency;
    change = {residency, bytes_[device]};
  }
  Tell(change);
}

int64_t ForeignLedger::bytes(int device) const {
  os::MutexLock lock(&mu_);
  return bytes_[device];
}

}  // namespace spillway::integration
