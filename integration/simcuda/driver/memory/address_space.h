// Who owns which device address: reservations, mappings of physical handles in them, and plain allocations.
// All rules of the virtual memory calls are checked here; the pages themselves are moved by MemoryPool.
// Thread-safe: one reader-writer lock. Nothing is called back under it.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_ADDRESS_SPACE_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_ADDRESS_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>
#include <vector>

#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/machine/device.h"
#include "integration/simcuda/driver/memory/ipc_file.h"
#include "integration/simcuda/driver/memory/memory_pool.h"

namespace simcuda {

// Physical memory: exists while it is referenced or mapped. A device's is mapped at one address at most, the host's at
// any number.
struct Physical {
  uint64_t id = 0;  // the CUmemGenericAllocationHandle
  uint64_t size = 0;
  uint64_t home = 0;         // of a device's; of the host's its place in the file
  Device* device = nullptr;  // null: host memory, not charged to a device
  CUmemAllocationProp properties{};
  int references = 1;
  int mappings = 0;
  bool stale = true;  // to be poisoned before anybody may see it
};

// Who asked for memory that is no mapping: cuMemAlloc, or a module for its variables (not charged to the device, and
// not cuMemFree's to free), or another process (cuIpcOpenMemHandle; charged there).
enum class AllocationKind { kPlain, kModule, kImported };

// In an access mask: the host.
inline constexpr unsigned kHostAccess = 1u << 31;

// One mapped handle, or one allocation (physical == null).
struct Mapping {
  uint64_t start = 0;
  uint64_t size = 0;
  Physical* physical = nullptr;
  Device* device = nullptr;
  void* context = nullptr;                       // allocations: the context that made them
  AllocationKind kind = AllocationKind::kPlain;  // allocations
  bool accessible = false;                       // pages are in place
  unsigned access_mask = 0;                      // devices that were given access; kHostAccess: the host
  unsigned long long id = 0;                     // CU_POINTER_ATTRIBUTE_BUFFER_ID
};

// What is known about an address, by value: safe to keep after the lock is gone.
struct AddressInfo {
  bool reserved = false;
  uint64_t reservation_start = 0;
  uint64_t reservation_size = 0;
  bool mapped = false;
  Mapping mapping;
};

class AddressSpace {
 public:
  bool Init();
  MemoryPool& pool() { return pool_; }

  CUresult Reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t* start);
  CUresult FreeReservation(uint64_t start, uint64_t size);

  CUresult Create(uint64_t size, const CUmemAllocationProp& properties, Device* device, uint64_t* handle);
  CUresult Release(uint64_t handle);
  // Whether somebody has the handle still; one that was released may live on behind a mapping.
  bool IsHandle(uint64_t handle);
  CUresult Retain(uint64_t address, uint64_t* handle);
  CUresult RetainHandle(uint64_t handle);
  CUresult GetProperties(uint64_t handle, CUmemAllocationProp* properties);

  CUresult Map(uint64_t start, uint64_t size, uint64_t offset, uint64_t handle);
  // Whether [start, start + size) can be unmapped: whole mappings without a gap.
  CUresult CheckUnmap(uint64_t start, uint64_t size);
  CUresult Unmap(uint64_t start, uint64_t size);
  // Mappings that begin in the range.
  uint64_t CountMappings(uint64_t start, uint64_t size);
  CUresult SetAccess(uint64_t start, uint64_t size, unsigned device_mask, bool accessible);
  // Bit i: device i may access the mapping at `address`; INVALID_VALUE where nothing is mapped.
  CUresult GetAccess(uint64_t address, unsigned* device_mask);

  CUresult Allocate(uint64_t size, Device* device, void* context, AllocationKind kind, uint64_t* start);
  // The plain allocation that starts at `start`; false when there is none.
  bool FindAllocation(uint64_t start, Mapping* allocation);
  CUresult Free(uint64_t start);
  // For other processes (shared_allocations.cc). Share: from now on the pages of the plain allocation at `start` lie in
  // a file; nothing may use them during the first call. Import: maps such a file, or finds where `context` has it
  // already. CloseImport: undoes one Import; *last: it was the last.
  CUresult Share(uint64_t start, IpcFile* file);
  bool IsShared(uint64_t start);
  CUresult Import(const IpcFile& file, Device* device, void* context, uint64_t* start);
  bool FindImport(uint64_t start, Mapping* allocation, bool* last);
  CUresult CloseImport(uint64_t start);
  // Frees every allocation of `context`, imported ones too.
  void FreeAllOf(void* context);

  AddressInfo Find(uint64_t address);
  // As Find, from a signal handler: gives up (false) when the lock cannot be had within a second.
  bool FindFromSignal(uint64_t address, AddressInfo* info);
  // The first address of the range that is not mapped with access; 0 when all of it is.
  uint64_t FirstInaccessible(uint64_t start, uint64_t size);
  // Makes one touched page readable and writable (mode report); false when the kernel refuses.
  bool LetIn(uint64_t address);

  // One line on what last happened to an address that is not mapped now ("it was unmapped 1.2 ms ago ..."), or "".
  // From a signal handler: allocates nothing, and knows nothing when the lock cannot be had at once.
  void History(uint64_t address, char* line, size_t bytes);

 private:
  struct Gone {
    uint64_t start = 0, size = 0;
    int64_t when_ns = 0;
    const char* how = "";
  };

  Mapping* FindMappingLocked(uint64_t address);
  AddressInfo FindLocked(uint64_t address);
  CUresult CheckWholeLocked(uint64_t start, uint64_t size);
  struct StalePart {
    uint64_t start, size;
  };
  CUresult SetAccessLocked(uint64_t start, uint64_t size, unsigned device_mask, bool accessible,
                           std::vector<StalePart>* stale);
  CUresult MakeAccessibleLocked(Mapping& mapping, std::vector<StalePart>* stale);
  void CloseLocked(Mapping& mapping);
  void UnmapOneLocked(Mapping& mapping);
  void DropIfUnusedLocked(Physical* physical);
  void FreeLocked(std::map<uint64_t, Mapping>::iterator it);
  void RememberLocked(uint64_t start, uint64_t size, const char* how);
  CUresult MapImportLocked(const IpcFile& file, Device* device, void* context, uint64_t* start);

  MemoryPool pool_;
  std::shared_mutex mutex_;  // guards everything below
  Extents addresses_;
  std::map<uint64_t, uint64_t> reservations_;  // start -> size, of cuMemAddressReserve
  std::map<uint64_t, Mapping> mappings_;       // by start
  std::map<uint64_t, Physical> physical_;      // by id
  std::map<uint64_t, IpcFile> shared_;         // of allocations that other processes may open, by start
  struct Imported {
    IpcFile file;
    int references = 1;
  };
  std::map<uint64_t, Imported> imported_;  // by start
  uint64_t next_id_ = 1;
  static constexpr int kRemembered = 256;
  Gone gone_[kRemembered];
  uint64_t gone_count_ = 0;
};

AddressSpace& GetAddressSpace();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_ADDRESS_SPACE_H_
