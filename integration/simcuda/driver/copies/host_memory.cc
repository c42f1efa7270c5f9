#include "integration/simcuda/driver/copies/host_memory.h"
#include "integration/simcuda/driver/core/fail_points.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/execution/faults.h"
#include "integration/simcuda/driver/graphs/capture.h"
#include "integration/simcuda/driver/machine/hardware_time.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

struct HostMemoryTable {
  std::shared_mutex mutex;  // guards the rest
  std::map<uint64_t, HostMemory> by_start;
  unsigned long long next_id = 1;
};
HostMemoryTable& GetHostMemoryTable() {
  static HostMemoryTable* table = new HostMemoryTable;
  return *table;
}

CUresult Insert(HostMemory memory) {
  HostMemoryTable& table = GetHostMemoryTable();
  std::unique_lock<std::shared_mutex> lock(table.mutex);
  const auto next = table.by_start.lower_bound(memory.start);
  if (next != table.by_start.end() && next->first < memory.start + memory.size) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  if (next != table.by_start.begin() &&
      std::prev(next)->first + std::prev(next)->second.size > memory.start) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  memory.id = table.next_id++;
  table.by_start.emplace(memory.start, memory);
  return CUDA_SUCCESS;
}

// Takes the entry that starts at `start` out; false when it is none of that kind.
bool Remove(uint64_t start, bool registered, HostMemory* removed) {
  HostMemoryTable& table = GetHostMemoryTable();
  std::unique_lock<std::shared_mutex> lock(table.mutex);
  const auto it = table.by_start.find(start);
  if (it == table.by_start.end() || it->second.registered != registered) return false;
  *removed = it->second;
  table.by_start.erase(it);
  return true;
}

// Whether this process has memory at all of [start, start + size).
bool IsHostMapped(uint64_t start, uint64_t size) {
  const uint64_t first = start & ~(kPage - 1);
  return msync(reinterpret_cast<void*>(first), start + size - first, MS_ASYNC) == 0;
}

// How much of [start, start + size) has no page of memory yet.
uint64_t EmptyBytes(uint64_t start, uint64_t size) {
  const uint64_t first = start & ~(kPage - 1);
  std::vector<unsigned char> pages((start + size - first + kPage - 1) / kPage);
  if (mincore(reinterpret_cast<void*>(first), start + size - first, pages.data()) != 0) return 0;
  const auto present = std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
  return (pages.size() - static_cast<size_t>(present)) * kPage;
}

// Takes the time of a registration, and of the pages that it makes. They are pages of zeros until they are
// written, so that this machine's own time for them does not count.
void SpendRegistering(uint64_t start, uint64_t size) {
  CallTime time(Call::kHostRegister);
  const HardwareProfile* const profile = ActiveProfile();
  const bool costs =
      profile != nullptr && profile->calls[static_cast<int>(Call::kHostRegister)].empty_byte_ns > 0;
  const uint64_t empty = costs ? EmptyBytes(start, size) : 0;
  time.Start(1, size, empty);
  const uint64_t first = start & ~(kPage - 1);
  if (empty != 0) madvise(reinterpret_cast<void*>(first), start + size - first, MADV_POPULATE_READ);
  time.Finish();
}

uint64_t MappedBytes(uint64_t size) { return (size + kPage - 1) & ~(kPage - 1); }

}  // namespace

bool FindHostMemory(uint64_t address, HostMemory* found) {
  HostMemoryTable& table = GetHostMemoryTable();
  std::shared_lock<std::shared_mutex> lock(table.mutex);
  auto it = table.by_start.upper_bound(address);
  if (it == table.by_start.begin()) return false;
  --it;
  if (address - it->first >= it->second.size) return false;
  if (found != nullptr) *found = it->second;
  return true;
}

CUresult AllocateHostMemory(uint64_t size, unsigned int flags, void* context, void** pointer) {
  if (size == 0 || size > (uint64_t{1} << 46)) return CUDA_ERROR_INVALID_VALUE;
  void* start = mmap(nullptr, MappedBytes(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  if (size >= kHugePage) madvise(start, MappedBytes(size), MADV_HUGEPAGE);
  *pointer = start;
  return Insert({reinterpret_cast<uint64_t>(start), size, flags, false, context, 0});
}

CUresult FreeHostMemory(void* pointer) {
  HostMemory memory;
  if (!Remove(reinterpret_cast<uint64_t>(pointer), false, &memory)) return CUDA_ERROR_INVALID_VALUE;
  munmap(pointer, MappedBytes(memory.size));
  return CUDA_SUCCESS;
}

}  // namespace simcuda

namespace {

using simcuda::Call;
using simcuda::CallTime;
using simcuda::Context;
using simcuda::EnterContext;
using simcuda::HostMemory;

CUresult HostAlloc(void** pointer, size_t size, unsigned int flags) {
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = simcuda::CheckUnsafeCall(); result != CUDA_SUCCESS) return result;
  CallTime time(Call::kHostAlloc);
  time.Spend(1, size);
  return simcuda::AllocateHostMemory(size, flags, context, pointer);
}

}  // namespace

SIMCUDA_API CUresult cuMemHostAlloc(void** pointer, size_t size, unsigned int flags) {
  SIMCUDA_FAIL_POINT(cuMemHostAlloc);
  return HostAlloc(pointer, size, flags);
}

SIMCUDA_API CUresult cuMemAllocHost_v2(void** pointer, size_t size) { return HostAlloc(pointer, size, 0); }

SIMCUDA_API CUresult cuMemFreeHost(void* pointer) {
  SIMCUDA_FAIL_POINT(cuMemFreeHost);
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  HostMemory memory;
  if (!simcuda::FindHostMemory(reinterpret_cast<uint64_t>(pointer), &memory)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = simcuda::CheckUnsafeCall(); result != CUDA_SUCCESS) return result;
  context->Synchronize();  // as CUDA: no copy may still be using it
  simcuda::CheckNobodyTouches(memory.start, memory.size, "cuMemFreeHost");
  CallTime time(Call::kHostFree);
  time.Spend(1, memory.size);
  return simcuda::FreeHostMemory(pointer);
}

SIMCUDA_API CUresult cuMemHostRegister_v2(void* pointer, size_t size, unsigned int flags) {
  SIMCUDA_FAIL_POINT(cuMemHostRegister_v2);
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  const uint64_t start = reinterpret_cast<uint64_t>(pointer);
  constexpr unsigned int kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                  CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if (start == 0 || size == 0 || (flags & ~kKnown) != 0 ||
      simcuda::GetAddressSpace().pool().Contains(start) || !simcuda::IsHostMapped(start, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  simcuda::SpendRegistering(start, size);
  return simcuda::Insert({start, size, flags, true, context, 0});
}

SIMCUDA_API CUresult cuMemHostRegister(void* pointer, size_t size, unsigned int flags) {
  return cuMemHostRegister_v2(pointer, size, flags);
}

SIMCUDA_API CUresult cuMemHostUnregister(void* pointer) {
  SIMCUDA_FAIL_POINT(cuMemHostUnregister);
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  HostMemory memory;
  if (!simcuda::Remove(reinterpret_cast<uint64_t>(pointer), true, &memory)) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  // The copy engine would find no pages there. Looked at first: a copy may end while the call's time passes.
  simcuda::CheckNobodyTouches(memory.start, memory.size, "cuMemHostUnregister");
  if (simcuda::GetSettings().unregister_waits.load() != 0) context->Synchronize();
  CallTime time(Call::kHostUnregister);
  time.Spend(1, memory.size);
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* pointer, unsigned int flags) {
  SIMCUDA_FAIL_POINT(cuMemHostGetDevicePointer_v2);
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  const uint64_t address = reinterpret_cast<uint64_t>(pointer);
  if (device == nullptr || flags != 0 || !simcuda::FindHostMemory(address, nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  *device = address;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  Context* context = nullptr;
  if (CUresult result = EnterContext(&context); result != CUDA_SUCCESS) return result;
  HostMemory memory;
  if (flags == nullptr || !simcuda::FindHostMemory(reinterpret_cast<uint64_t>(pointer), &memory) ||
      memory.registered) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = memory.flags | CU_MEMHOSTALLOC_DEVICEMAP;  // unified addressing maps everything
  return CUDA_SUCCESS;
}
