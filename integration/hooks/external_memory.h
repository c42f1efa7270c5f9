// ExternalMemory counts the device memory of driver allocations that are not ours, per device, from the first
// hooked call on. The wrappers of allocation calls report to it, on any thread; it remembers sizes, since a
// free has none. A device's Residency gets the sum when it is attached, and each change after that, on the
// calling thread and without the lock. Contexts and modules do not count. No call fails; an allocation that
// the wrappers have not seen is not counted.

#ifndef SPILLWAY_INTEGRATION_HOOKS_EXTERNAL_MEMORY_H_
#define SPILLWAY_INTEGRATION_HOOKS_EXTERNAL_MEMORY_H_

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "allocator/memory/block_id.h"
#include "allocator/residency/residency.h"
#include "io/os/sync.h"

namespace spillway::integration {

class ExternalMemory {
 public:
  ExternalMemory() = default;
  ExternalMemory(const ExternalMemory&) = delete;
  ExternalMemory& operator=(const ExternalMemory&) = delete;

  // Whole allocations, named by their address or by the handle of an array; `kind` keeps the two apart.
  // Device ordinals outside 0..kMaxDevices-1 are not counted. Thread-safe.
  enum class Kind : uint8_t { kAddress, kArray, kMipmappedArray };
  void OnAllocate(Kind kind, uint64_t key, int device, uint64_t bytes);
  uint64_t OnFree(Kind kind, uint64_t key);  // returns the allocation's bytes; 0 if it was not known

  // Physical memory of the virtual memory calls. It lives until its handle is released, once more for each
  // retain, and nothing maps it any more. Thread-safe.
  void OnCreate(CUmemGenericAllocationHandle handle, int device, uint64_t bytes);
  void OnRetain(CUmemGenericAllocationHandle handle);
  void OnRelease(CUmemGenericAllocationHandle handle);
  void OnMap(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle);
  void OnUnmap(CUdeviceptr address, uint64_t bytes);

  // Forgets everything on `device`, whose primary context was reset. Handles that are named later are not
  // known.
  void ForgetDevice(int device);

  // Reports the device's external bytes to `residency`: the sum now, then each change. Null ends the reports.
  void Attach(int device, allocator::Residency* residency);
  int64_t bytes(int device) const;

 private:
  struct Entry {
    int device = 0;
    uint64_t bytes = 0;
  };
  // The memory of one handle. It is dropped when both counts are 0.
  struct Physical {
    Entry entry;
    int references = 1;
    int mappings = 0;
  };
  // A mapping of a part of a handle's memory; an unmap may cover several.
  struct Mapping {
    uint64_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;
  };
  // A change that is reported to the device's residency after mu_ is released.
  struct Change {
    allocator::Residency* residency = nullptr;
    int64_t delta = 0;
  };
  Change AddLocked(int device, int64_t delta) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets the physical memory if it has neither a handle nor a mapping.
  Change DropUnusedLocked(CUmemGenericAllocationHandle handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Report(const Change& change);
  static bool Counts(int device) { return device >= 0 && device < allocator::kMaxDevices; }

  mutable os::Mutex mu_{os::LockRank::kRegistry};
  std::map<std::pair<Kind, uint64_t>, Entry> allocations_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<CUmemGenericAllocationHandle, Physical> physical_ ABSL_GUARDED_BY(mu_);
  std::map<CUdeviceptr, Mapping> mappings_ ABSL_GUARDED_BY(mu_);
  std::array<int64_t, allocator::kMaxDevices> bytes_ ABSL_GUARDED_BY(mu_){};
  std::array<allocator::Residency*, allocator::kMaxDevices> residencies_ ABSL_GUARDED_BY(mu_){};
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_EXTERNAL_MEMORY_H_
