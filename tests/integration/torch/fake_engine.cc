// A stand-in for the engine behind PyTorch's allocator: implements spillway.h over cuMemAlloc with a settable
// budget, a cache of freed blocks, and counters of its calls. Loaded by the Python tests with ctypes; it
// shows that the allocator needs nothing of the engine but the C ABI.

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "integration/engine/spillway.h"

namespace {

struct Block {
  size_t requested;
  size_t size;
  void* stream;
  bool live;
};

struct FakeEngine {
  std::mutex mu;
  std::map<uintptr_t, Block> blocks;
  uint64_t budget = uint64_t{1} << 30;
  uint64_t cap = UINT64_MAX;
  uint64_t live = 0, requested = 0, held = 0, peak = 0;
  int failure = 0;  // what allocations and empty_cache answer
  bool dead = false;
  uint64_t allocations = 0, frees = 0, records = 0, empties = 0, marks = 0;
  void* last_recorded = nullptr;
} fake;

thread_local std::string last_error;

using AllocFn = int (*)(uint64_t*, size_t);
using FreeFn = int (*)(uint64_t);
using SyncFn = int (*)();

template <typename Function>
Function Driver(const char* symbol) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function>(dlsym(library, symbol));
}

int Refuse(int result, const std::string& text) {
  last_error = text;
  return result;
}

// Freed blocks go back to the driver once nothing queued can touch them.
void DropCached() {
  Driver<SyncFn>("cuCtxSynchronize")();
  for (auto it = fake.blocks.begin(); it != fake.blocks.end();) {
    if (it->second.live) {
      ++it;
      continue;
    }
    Driver<FreeFn>("cuMemFree_v2")(it->first);
    fake.held -= it->second.size;
    it = fake.blocks.erase(it);
  }
}

int Allocate(int, size_t bytes, void* stream, void** pointer) {
  std::lock_guard lock(fake.mu);
  if (fake.dead) return Refuse(3, "the fake engine has ended");
  const size_t size = (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20);
  if (fake.failure != 0) return Refuse(fake.failure, "the fake engine fails");
  if (fake.live + size > fake.cap) return Refuse(2, "the fake engine is limited");
  if (fake.live + size > fake.budget) {
    return Refuse(2, "the fake budget of " + std::to_string(fake.budget) + " bytes is used up");
  }
  uintptr_t address = 0;
  for (auto& [start, block] : fake.blocks) {
    if (!block.live && block.size == size && block.stream == stream) address = start;
  }
  if (address == 0) {
    uint64_t fresh = 0;
    if (Driver<AllocFn>("cuMemAlloc_v2")(&fresh, size) != 0)
      return Refuse(2, "the driver has no more memory");
    address = fresh;
    fake.held += size;
  }
  fake.blocks[address] = {bytes, size, stream, true};
  fake.live += size;
  fake.requested += bytes;
  if (fake.held > fake.peak) fake.peak = fake.held;
  ++fake.allocations;
  *pointer = reinterpret_cast<void*>(address);
  return 0;
}

std::map<uintptr_t, Block>::iterator Find(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto it = fake.blocks.upper_bound(address);
  if (it == fake.blocks.begin()) return fake.blocks.end();
  --it;
  return address < it->first + it->second.size ? it : fake.blocks.end();
}

int Free(void* pointer) {
  std::lock_guard lock(fake.mu);
  if (fake.dead) return 3;
  auto it = Find(pointer);
  if (it == fake.blocks.end() || !it->second.live) return Refuse(1, "no block starts there");
  it->second.live = false;
  fake.live -= it->second.size;
  fake.requested -= it->second.requested;
  ++fake.frees;
  return 0;
}

int RecordStream(void* pointer, void* stream) {
  std::lock_guard lock(fake.mu);
  if (Find(pointer) == fake.blocks.end()) return Refuse(1, "no block starts there");
  ++fake.records;
  fake.last_recorded = stream;
  return 0;
}

int Owns(const void* pointer) {
  std::lock_guard lock(fake.mu);
  return Find(pointer) != fake.blocks.end();
}

int FindRange(const void* pointer, void** base, size_t* bytes) {
  std::lock_guard lock(fake.mu);
  auto it = Find(pointer);
  if (it == fake.blocks.end()) return 1;
  *base = reinterpret_cast<void*>(it->first);
  *bytes = it->second.requested;
  return 0;
}

int EmptyCache(int) {
  std::lock_guard lock(fake.mu);
  ++fake.empties;
  if (fake.failure != 0) return Refuse(fake.failure, "the fake engine fails");
  DropCached();
  return 0;
}

int MemoryInfo(int, size_t* free, size_t* total) {
  std::lock_guard lock(fake.mu);
  *total = fake.budget;
  *free = fake.budget - fake.live;
  return 0;
}

int DeviceStats(int, spillway_device_stats* stats) {
  std::lock_guard lock(fake.mu);
  *stats = {};
  stats->budget_bytes = fake.budget;
  stats->live_bytes = stats->resident_bytes = fake.live;
  stats->requested_bytes = fake.requested;
  stats->chunk_bytes = fake.held;
  stats->peak_chunk_bytes = fake.peak;
  stats->cached_bytes = fake.held - fake.live;
  return 0;
}

int ReservedBytes(int, size_t* now, size_t* peak) {
  std::lock_guard lock(fake.mu);
  *now = fake.held;
  *peak = fake.peak;
  return 0;
}

// The fake device is as large as its budget.
int DeviceBytes(int, size_t* bytes) {
  std::lock_guard lock(fake.mu);
  *bytes = fake.budget;
  return 0;
}

int SetMemoryCap(int, size_t bytes) {
  std::lock_guard lock(fake.mu);
  fake.cap = bytes;
  return 0;
}

int MarkIteration() {
  std::lock_guard lock(fake.mu);
  ++fake.marks;
  return 0;
}

const char* LastError() { return last_error.c_str(); }

// What PyTorch's allocator calls; the rest of the table stays empty.
spillway_api MakeApi() {
  spillway_api api{};
  api.version = SPILLWAY_API_VERSION;
  api.size = sizeof(spillway_api);
  api.version_text = "fake";
  api.smallest_block_bytes = (1 << 20) + 1;
  api.allocate = &Allocate;
  api.allocate_segment = &Allocate;
  api.free = &Free;
  api.record_stream = &RecordStream;
  api.owns = &Owns;
  api.find_range = &FindRange;
  api.empty_cache = &EmptyCache;
  api.memory_info = &MemoryInfo;
  api.device_stats = &DeviceStats;
  api.reserved_bytes = &ReservedBytes;
  api.mark_iteration = &MarkIteration;
  api.device_bytes = &DeviceBytes;
  api.set_memory_cap = &SetMemoryCap;
  api.last_error = &LastError;
  return api;
}

const spillway_api kApi = MakeApi();

}  // namespace

extern "C" {

// Opens the allocator library as the engine does, and installs it into the PyTorch of that release. "" or why
// not.
__attribute__((visibility("default"))) const char* fake_install(const char* library, const char* release,
                                                                uint64_t budget) {
  static char error[512];
  fake.budget = budget;
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    std::snprintf(error, sizeof(error), "%s", dlerror());
    return error;
  }
  auto install = reinterpret_cast<spillway_torch_install_fn>(dlsym(handle, SPILLWAY_TORCH_INSTALL));
  error[0] = 0;
  if (install == nullptr) return "no install function";
  return install(&kApi, release, error, sizeof(error)) == 0 ? "" : error;
}

__attribute__((visibility("default"))) uint64_t fake_count(const char* what) {
  std::lock_guard lock(fake.mu);
  const std::string name = what;
  if (name == "allocations") return fake.allocations;
  if (name == "frees") return fake.frees;
  if (name == "records") return fake.records;
  if (name == "empties") return fake.empties;
  if (name == "marks") return fake.marks;
  if (name == "live") return fake.live;
  if (name == "held") return fake.held;
  if (name == "recorded_stream") return reinterpret_cast<uint64_t>(fake.last_recorded);
  return ~uint64_t{0};
}

__attribute__((visibility("default"))) int fake_owns(uint64_t address) {
  return Owns(reinterpret_cast<void*>(address));
}

// What allocations and empty_cache answer from now on; 0: they work.
__attribute__((visibility("default"))) void fake_fail(int result) {
  std::lock_guard lock(fake.mu);
  fake.failure = result;
}

// From now on every call answers "not initialized", as after exit has begun.
__attribute__((visibility("default"))) void fake_end() {
  std::lock_guard lock(fake.mu);
  fake.dead = true;
}

}  // extern "C"
