// The owners of device addresses: reservations, mappings of physical handles in them, and plain allocations.
// All rules of the virtual memory calls are checked here; MemoryPool moves the pages themselves. Thread-safe:
// one reader-writer lock. No callback runs under it.
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

// Physical memory, which exists as long as it is referenced or mapped. A device's is mapped at one address at
// most, the host's at any number.
struct Physical {
  uint64_t id = 0;  // the CUmemGenericAllocationHandle
  uint64_t size = 0;
  uint64_t home = 0;         // of a device's memory; the place in the file for the host's
  Device* device = nullptr;  // null: host memory, not charged to a device
  CUmemAllocationProp properties{};
  int references = 1;
  int mappings = 0;
  bool stale = true;  // to be poisoned before anybody may see it
};

// The origin of memory that is no mapping: cuMemAlloc, a module for its variables (not charged to the device,
// and not cuMemFree's to free), or another process (cuIpcOpenMemHandle; charged there).
enum class AllocationKind { kPlain, kModule, kImported };

// The host's bit in an access mask.
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

// The facts about an address, by value: safe to keep after the lock is released.
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
  // Returns whether somebody still has the handle; one that was released may live on behind a mapping.
  bool IsHandle(uint64_t handle);
  CUresult Retain(uint64_t address, uint64_t* handle);
  CUresult RetainHandle(uint64_t handle);
  CUresult GetProperties(uint64_t handle, CUmemAllocationProp* properties);

  CUresult Map(uint64_t start, uint64_t size, uint64_t offset, uint64_t handle);
  // Checks that [start, start + size) can be unmapped: whole mappings without a gap.
  CUresult CheckUnmap(uint64_t start, uint64_t size);
  CUresult Unmap(uint64_t start, uint64_t size);
  // Returns the number of mappings that begin in the range.
  uint64_t CountMappings(uint64_t start, uint64_t size);
  CUresult SetAccess(uint64_t start, uint64_t size, unsigned device_mask, bool accessible);
  // Bit i of the mask: device i may access the mapping at `address`. Returns INVALID_VALUE if nothing is
  // mapped there.
  CUresult GetAccess(uint64_t address, unsigned* device_mask);

  CUresult Allocate(uint64_t size, Device* device, void* context, AllocationKind kind, uint64_t* start);
  // Finds the plain allocation that starts at `start`; false if there is none.
  bool FindAllocation(uint64_t start, Mapping* allocation);
  CUresult Free(uint64_t start);
  // For other processes (shared_allocations.cc). Share moves the pages of the plain allocation at `start`
  // into a file, for good; nothing may use them during the first call. Import maps such a file, or finds the
  // address at which `context` has it already. CloseImport undoes one Import; *last: it was the last.
  CUresult Share(uint64_t start, IpcFile* file);
  bool IsShared(uint64_t start);
  CUresult Import(const IpcFile& file, Device* device, void* context, uint64_t* start);
  bool FindImport(uint64_t start, Mapping* allocation, bool* last);
  CUresult CloseImport(uint64_t start);
  // Frees every allocation of `context`, including imported ones.
  void FreeAllOf(void* context);

  AddressInfo Find(uint64_t address);
  // Like Find, for a signal handler: gives up (false) if the lock is not free within a second.
  bool FindFromSignal(uint64_t address, AddressInfo* info);
  // Returns the host memory, in bytes, that is mapped from `address` to the next address without a mapping,
  // and that address in *end: the part of a block that kernels reach over the link.
  uint64_t HostBytesFrom(uint64_t address, uint64_t* end);
  // Returns the first address of the range that is not mapped with access; 0 if all of it is.
  uint64_t FirstInaccessible(uint64_t start, uint64_t size);
  // Makes one touched page readable and writable (mode report). Returns false if the kernel refuses.
  bool LetIn(uint64_t address);

  // Writes one line on what last happened to an address that is not mapped now ("it was unmapped 1.2 ms ago
  // ..."), or "". For a signal handler: allocates nothing, and knows nothing if the lock is not free at once.
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
  std::map<uint64_t, IpcFile> shared_;         // allocations that other processes may open, by start
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
