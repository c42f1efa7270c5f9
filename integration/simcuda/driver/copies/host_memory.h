// Pinned host memory: allocated by the driver or registered with it. It is ordinary memory otherwise; it
// matters only that copies to and from it need not wait. Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_COPIES_HOST_MEMORY_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_COPIES_HOST_MEMORY_H_

#include <cstdint>

#include "integration/simcuda/driver/core/driver_api.h"

namespace simcuda {

struct HostMemory {
  uint64_t start = 0;
  uint64_t size = 0;
  unsigned int flags = 0;  // CU_MEMHOSTALLOC_* or CU_MEMHOSTREGISTER_*
  bool registered = false;
  void* context = nullptr;
  unsigned long long id = 0;  // the buffer id of pointer attributes; never given twice
};

// Finds the pinned memory that contains `address`, copied to *found (may be null).
bool FindHostMemory(uint64_t address, HostMemory* found);

// Return INVALID_VALUE for sizes that no host has and for pointers that were not allocated here;
// OUT_OF_MEMORY if the system gives none. Neither waits: cuMemFreeHost has waited for the context before.
CUresult AllocateHostMemory(uint64_t size, unsigned int flags, void* context, void** pointer);
CUresult FreeHostMemory(void* pointer);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_COPIES_HOST_MEMORY_H_
