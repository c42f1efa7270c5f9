#include "integration/engine/c_api.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/refusals.h"
#include "integration/engine/runtime.h"
#include "integration/hooks/hook_context.h"

namespace spillway::integration {
namespace {

// One byte above kSmallSize of c10/cuda/CUDACachingAllocator.cpp. PyTorch packs smaller blocks, 1 MiB
// included, into shared segments of 2 MiB, and a chunk of ours would be twice the size of a block of 1 MiB.
constexpr uint64_t kSmallestBlock = (1 << 20) + 1;

// Returns the driver's own code if the status has one, otherwise the meaning of the status's kind for the
// caller.
int ResultOf(const absl::Status& status) {
  const CUresult known = allocator::ResultOf(status);
  if (known != CUDA_ERROR_UNKNOWN) return known;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange: return CUDA_ERROR_INVALID_VALUE;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kCancelled: return CUDA_ERROR_NOT_INITIALIZED;
    default: return CUDA_ERROR_UNKNOWN;
  }
}

int Refuse(const absl::Status& why) {
  if (Runtime* runtime = Runtime::Get()) runtime->refusals()->Record(why);
  return ResultOf(why);
}

int WrongUse(const char* words) { return Refuse(absl::InvalidArgumentError(words)); }

int Answer(const absl::Status& status) { return status.ok() ? CUDA_SUCCESS : Refuse(status); }

// Runs `body`, which returns a CUresult. An exception from below (bad_alloc, a lock that cannot be taken)
// becomes one.
template <typename Body>
int Guarded(Body body) {
  try {
    return body();
  } catch (const std::exception& failure) {
    try {
      return Refuse(absl::InternalError(failure.what()));
    } catch (const std::exception&) {  // no memory for the text either
      return CUDA_ERROR_UNKNOWN;
    }
  }
}

// This is no refusal: the caller does without us.
int NotInitialized() { return CUDA_ERROR_NOT_INITIALIZED; }

// The region of the blocks that the calling thread allocates.
thread_local allocator::BlockRegion t_region;

int AllocateIn(allocator::BlockRegion region, int device, size_t bytes, void* stream, void** pointer) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    if (runtime == nullptr) return NotInitialized();
    runtime->refusals()->Forget();
    if (bytes == 0 || pointer == nullptr) return WrongUse("no bytes, or no place for them");
    auto residency = runtime->Device(device);
    if (!residency.ok()) return Answer(residency.status());
    auto address = (*residency)->Allocate(bytes, {static_cast<CUstream>(stream), false}, region);
    if (!address.ok()) return Answer(runtime->Explain(device, address.status()));
    *pointer = reinterpret_cast<void*>(*address);
    return static_cast<int>(CUDA_SUCCESS);
  });
}

int Allocate(int device, size_t bytes, void* stream, void** pointer) {
  return AllocateIn(t_region, device, bytes, stream, pointer);
}

int AllocateSegment(int device, size_t bytes, void* stream, void** pointer) {
  return AllocateIn({t_region.tag, /*keep=*/true}, device, bytes, stream, pointer);
}

int Free(void* pointer) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    allocator::Residency* residency = runtime == nullptr ? nullptr : runtime->Owner(pointer);
    if (residency == nullptr) return NotInitialized();
    RecordBlockFreed(reinterpret_cast<uint64_t>(pointer));
    return Answer(residency->Free(reinterpret_cast<CUdeviceptr>(pointer)));
  });
}

int RecordStream(void* pointer, void* stream) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    allocator::Residency* residency = runtime == nullptr ? nullptr : runtime->Owner(pointer);
    if (residency == nullptr) return NotInitialized();
    return Answer(
        residency->RecordStream(reinterpret_cast<CUdeviceptr>(pointer), static_cast<CUstream>(stream)));
  });
}

// Returns 0 if there is no answer, which does no harm: native examines the pointer then.
int Owns(const void* pointer) {
  try {
    const Runtime* runtime = Runtime::Get();
    return runtime != nullptr && runtime->Owns(pointer) ? 1 : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

int FindRange(const void* pointer, void** base, size_t* bytes) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    allocator::Residency* residency = runtime == nullptr ? nullptr : runtime->Owner(pointer);
    if (residency == nullptr) return NotInitialized();
    auto range = residency->FindRange(reinterpret_cast<CUdeviceptr>(pointer));
    if (!range.ok()) return Answer(range.status());
    if (base != nullptr) *base = reinterpret_cast<void*>(range->base);
    if (bytes != nullptr) *bytes = range->bytes;
    return static_cast<int>(CUDA_SUCCESS);
  });
}

allocator::Residency* Existing(int device) {
  Runtime* runtime = Runtime::Get();
  return runtime == nullptr ? nullptr : runtime->Existing(device);
}

int EmptyCache(int device) {
  return Guarded([&] {
    allocator::Residency* residency = Existing(device);
    if (residency == nullptr) return NotInitialized();
    return Answer(residency->EmptyCache());
  });
}

int MemoryInfo(int device, size_t* free_bytes, size_t* total_bytes) {
  return Guarded([&] {
    allocator::Residency* residency = Existing(device);
    if (residency == nullptr) return NotInitialized();
    uint64_t free = 0;
    uint64_t total = 0;
    residency->MemoryInfo(&free, &total);
    if (free_bytes != nullptr) *free_bytes = free;
    if (total_bytes != nullptr) *total_bytes = total;
    return static_cast<int>(CUDA_SUCCESS);
  });
}

int DeviceStats(int device, spillway_device_stats* out) {
  return Guarded([&] {
    if (out == nullptr) return WrongUse("no place for the figures");
    *out = {};
    allocator::Residency* residency = Existing(device);
    if (residency == nullptr) return NotInitialized();
    const allocator::ResidencyStats stats = residency->Stats();
    out->budget_bytes = stats.budget_bytes;
    out->live_bytes = stats.live_bytes;
    out->requested_bytes = stats.requested_bytes;
    out->chunk_bytes = stats.chunk_bytes;
    out->peak_chunk_bytes = stats.peak_chunk_bytes;
    out->cached_bytes = stats.cached_bytes;
    out->resident_bytes = stats.resident_bytes;
    out->host_tier_bytes = stats.host_tier_bytes;
    out->disk_tier_bytes = stats.disk_tier_bytes;
    out->spilled_bytes = stats.spilled_bytes;
    out->fetched_bytes = stats.fetched_bytes;
    return static_cast<int>(CUDA_SUCCESS);
  });
}

int ReservedBytes(int device, size_t* now, size_t* peak) {
  return Guarded([&] {
    if (now == nullptr || peak == nullptr) return WrongUse("no place for the bytes");
    allocator::Residency* residency = Existing(device);
    if (residency == nullptr) return NotInitialized();
    const allocator::Residency::ReservedBytes reserved = residency->Reserved();
    *now = reserved.now;
    *peak = reserved.peak;
    return static_cast<int>(CUDA_SUCCESS);
  });
}

const char* LastErrorText() {
  Runtime* runtime = Runtime::Get();
  return runtime == nullptr ? "" : runtime->refusals()->OfThisThread();
}

// Hands a text out as spillway.h describes.
int HandOut(const std::string& from, char* text, size_t bytes, size_t* needed) {
  if (needed == nullptr) return WrongUse("no place for the size of the text");
  *needed = from.size() + 1;
  if (text == nullptr || bytes == 0) return CUDA_SUCCESS;
  const size_t copied = std::min(bytes - 1, from.size());
  std::memcpy(text, from.data(), copied);
  text[copied] = 0;
  return CUDA_SUCCESS;
}

int StatsJson(char* text, size_t bytes, size_t* needed) {
  return Guarded([&] {
    const Runtime* runtime = Runtime::Get();
    if (runtime == nullptr || runtime->dead()) return NotInitialized();
    return HandOut(MetricsJson(runtime->CurrentMetrics()), text, bytes, needed);
  });
}

int LastRefusalText(char* text, size_t bytes, size_t* needed) {
  return Guarded([&] {
    const Runtime* runtime = Runtime::Get();
    return HandOut(runtime == nullptr ? "" : runtime->refusals()->Latest(), text, bytes, needed);
  });
}

int MarkIteration() {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    if (runtime == nullptr || runtime->dead()) return NotInitialized();
    runtime->MarkIteration();
    return static_cast<int>(CUDA_SUCCESS);
  });
}

int TakeRefusedCall() {
  Runtime* runtime = Runtime::Get();
  return runtime != nullptr && runtime->refusals()->TakeCall() ? 1 : 0;
}

int OnRefusedCall(void (*listener)()) {
  Runtime* runtime = Runtime::Get();
  if (runtime == nullptr) return NotInitialized();
  runtime->refusals()->SetListener(listener);
  return CUDA_SUCCESS;
}

int DeviceBytes(int device, size_t* bytes) {
  return Guarded([&] {
    if (bytes == nullptr) return WrongUse("no place for the bytes");
    Runtime* runtime = Runtime::Get();
    if (runtime == nullptr) return NotInitialized();
    const auto total = runtime->DeviceBytes(device);
    if (!total.ok()) return Answer(total.status());
    *bytes = *total;
    return static_cast<int>(CUDA_SUCCESS);
  });
}

int OnKernelTable(void (*listener)()) {
  HookState* const state = GetHookState();
  if (state == nullptr) return NotInitialized();
  state->tables.SetKernelTableListener(listener);
  return CUDA_SUCCESS;
}

int MemoryFreed(int device, const void* pointer, size_t bytes, void* stream) {
  return Guarded([&] {
    const HookContext* const context = ContextOf(GetHookState());
    if (context == nullptr) return NotInitialized();
    if (device < 0 || device >= allocator::kMaxDevices) return WrongUse("no such device");
    const CUcontext primary = context->contexts[static_cast<size_t>(device)];
    RecordExternalFreed(reinterpret_cast<uint64_t>(pointer), bytes,
                        {{{static_cast<CUstream>(stream), false, primary}}, {}});
    return static_cast<int>(CUDA_SUCCESS);
  });
}

int SetMemoryCap(int device, size_t bytes) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    return runtime == nullptr ? NotInitialized() : Answer(runtime->SetCap(device, bytes));
  });
}

int SetGpuMemory(int device, const char* size) {
  return Guarded([&] {
    if (size == nullptr) return WrongUse("no size");
    Runtime* runtime = Runtime::Get();
    return runtime == nullptr ? NotInitialized() : Answer(runtime->SetGpuMemory(device, size));
  });
}

int SetRegion(const char* tag, int keep) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    if (runtime == nullptr || runtime->dead()) return NotInitialized();
    t_region = {};
    if (tag == nullptr) return static_cast<int>(CUDA_SUCCESS);
    if (*tag == 0) return WrongUse("a region with an empty tag");
    t_region = {runtime->pause()->TagOf(tag), keep != 0};
    return static_cast<int>(CUDA_SUCCESS);
  });
}

void HandOut(const allocator::PauseStats& from, const Metrics& metrics, spillway_pause_stats* stats) {
  *stats = {};
  stats->clean_bytes = from.clean_bytes;
  stats->host_bytes = from.host_bytes;
  stats->disk_bytes = from.disk_bytes;
  stats->dropped_bytes = from.dropped_bytes;
  stats->unused_bytes = from.unused_bytes;
  stats->pinned_bytes = from.pinned_bytes;
  stats->failed_bytes = from.failed_bytes;
  stats->released_bytes = from.released_bytes;
  stats->remaining_bytes = from.remaining_bytes;
  for (const DeviceMetrics& device : metrics.devices) stats->other_bytes += device.stats.external_bytes;
  stats->nanoseconds = static_cast<uint64_t>(from.nanos);
  from.failure.copy(stats->failure, sizeof(stats->failure) - 1);
}

int Pause(const char* tag, spillway_pause_stats* stats) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    if (runtime == nullptr || runtime->dead()) return NotInitialized();
    allocator::PauseStats found;
    const absl::Status status = runtime->pause()->Pause(tag == nullptr ? "" : tag, &found);
    if (status.ok() && stats != nullptr) HandOut(found, runtime->CurrentMetrics(), stats);
    return Answer(status);
  });
}

int Resume(const char* tag, int wait) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    if (runtime == nullptr || runtime->dead()) return NotInitialized();
    return Answer(runtime->pause()->Resume(tag == nullptr ? "" : tag, wait != 0));
  });
}

int ReadPaused(const void* pointer, void* to, size_t bytes) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    allocator::Residency* residency = runtime == nullptr ? nullptr : runtime->Owner(pointer);
    if (residency == nullptr) return static_cast<int>(CUDA_ERROR_INVALID_VALUE);  // none of ours
    if (to == nullptr) return WrongUse("no place for the bytes");
    const absl::Status read =
        residency->ReadPaused(reinterpret_cast<CUdeviceptr>(pointer), static_cast<std::byte*>(to), bytes);
    return ResultOf(read);  // a question: no is no refusal
  });
}

constexpr spillway_api kApi = {
    SPILLWAY_API_VERSION,
    sizeof(spillway_api),
    SPILLWAY_VERSION_TEXT,
    kSmallestBlock,
    &Allocate,
    &Free,
    &RecordStream,
    &Owns,
    &FindRange,
    &EmptyCache,
    &MemoryInfo,
    &DeviceStats,
    &LastErrorText,
    &StatsJson,
    &LastRefusalText,
    &ReservedBytes,
    &MarkIteration,
    &TakeRefusedCall,
    &OnRefusedCall,
    &DeviceBytes,
    &OnKernelTable,
    &MemoryFreed,
    &SetMemoryCap,
    &SetGpuMemory,
    &SetRegion,
    &Pause,
    &Resume,
    &ReadPaused,
    &AllocateSegment,
};

}  // namespace

const spillway_api* GetApi() { return &kApi; }

}  // namespace spillway::integration
