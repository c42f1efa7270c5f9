// The host memory behind the device. It is a stretch of addresses for everything a job can see (reservations
// and allocations), which begins where NVIDIA's driver begins; one for a reservation that the job wants
// elsewhere; and one for the homes of physical handles that are mapped nowhere. All are PROT_NONE while no
// memory is in use, are not inherited by forks, and take host memory only for what exists.
//
// Handles in host memory lie in a file without a name instead, since they may be mapped at several addresses
// at once.
//
// A map moves the pages of a handle from its home to the address (mremap), an unmap moves them back: no copy,
// and no page fault later. MREMAP_DONTUNMAP keeps the place that the pages left reserved, so no other
// thread's mmap can land in it.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_MEMORY_POOL_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_MEMORY_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "integration/simcuda/driver/machine/device_rights.h"
#include "integration/simcuda/driver/memory/extents.h"

namespace simcuda {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kHugePage = 2 << 20;

class MemoryPool {
 public:
  // Reserves the first stretch and the homes. Returns false if the process cannot have them.
  bool Init();
  // Makes [start, start + size) visible as well, once. Returns false the second time, or if something else
  // lies there. The caller holds the address space's lock.
  bool AddHinted(uint64_t start, uint64_t size);

  // Returns whether the address can belong to a device at all.
  bool Contains(uint64_t address) const {
    return address - visible_start_ < visible_size_ ||
           address - hinted_start_.load(std::memory_order_acquire) <
               hinted_size_.load(std::memory_order_relaxed);
  }
  uint64_t visible_start() const { return visible_start_; }
  uint64_t visible_size() const { return visible_size_; }

  // Returns a home for a handle of `size` bytes, 0 if none is left. The caller holds the address space's
  // lock.
  uint64_t TakeHome(uint64_t size);
  // Drops the pages and takes the home back.
  void GiveHome(uint64_t home, uint64_t size);

  // Move the pages home -> address and make them readable and writable for `touch`; and back. Return false if
  // the kernel refused (too many mappings: vm.max_map_count).
  bool MoveIn(uint64_t home, uint64_t address, uint64_t size, Touch touch);
  bool MoveOut(uint64_t address, uint64_t home, uint64_t size);

  // Take a place in the file of host memory for a handle of `size` bytes, 0 if none is left; and give it
  // back, with its bytes gone. The caller holds the address space's lock.
  uint64_t TakeHostPlace(uint64_t size);
  void GiveHostPlace(uint64_t place, uint64_t size);
  // Makes the bytes of the place readable and writable for `touch` at the address, beside its other mappings.
  // Undone by Depopulate. Returns false if the kernel refused.
  bool MapHostPlace(uint64_t place, uint64_t address, uint64_t size, Touch touch);

  // Memory without a home, for allocations: pages of a device's appear at the address, and vanish.
  bool Populate(uint64_t address, uint64_t size);
  void Depopulate(uint64_t address, uint64_t size);
  // Puts the pages of a file in place of what is there, until Depopulate.
  bool PopulateFrom(int descriptor, uint64_t address, uint64_t size);

 private:
  uint64_t visible_start_ = 0;
  uint64_t visible_size_ = 0;
  // The size is stored before the start: a reader that sees the start sees the size.
  std::atomic<uint64_t> hinted_start_{0}, hinted_size_{0};
  Extents homes_;
  int host_file_ = -1;  // created with the first place
  Extents host_places_;
};

// Fills memory with the pattern FE FF FE FF...: no-number in every float format, out of range as an index,
// and easy to recognize. `address` and `bytes` are multiples of 8.
void FillWithPoison(uint64_t address, uint64_t bytes);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MEMORY_MEMORY_POOL_H_
