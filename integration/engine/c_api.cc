#include "integration/engine/c_api.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "integration/engine/runtime.h"
#include "integration/hooks/launch_gate.h"
#include "io/os/sync.h"

namespace spillway::integration {
namespace {

constexpr uint64_t kSmallestBlock = 1 << 20;

std::string& LastError() {
  thread_local std::string text;
  return text;
}

// The last refusal of any thread, for people who ask later.
class LastRefusal {
 public:
  static LastRefusal& Get() {
    static LastRefusal* const instance =
        new LastRefusal;  // never destroyed: calls come until the process is gone
    return *instance;
  }
  void Set(const std::string& text) {
    os::MutexLock lock(&mu_);
    text_ = text;
  }
  std::string Text() {
    os::MutexLock lock(&mu_);
    return text_;
  }

 private:
  os::Mutex mu_{os::LockRank::kLog};
  std::string text_ ABSL_GUARDED_BY(mu_);
};

int Refuse(int result, std::string text) {
  if (result != CUDA_ERROR_NOT_INITIALIZED) LastRefusal::Get().Set(text);
  LastError() = std::move(text);
  return result;
}

int ResultOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return CUDA_SUCCESS;
    case absl::StatusCode::kResourceExhausted: return CUDA_ERROR_OUT_OF_MEMORY;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange: return CUDA_ERROR_INVALID_VALUE;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kCancelled: return CUDA_ERROR_NOT_INITIALIZED;
    default: return CUDA_ERROR_UNKNOWN;
  }
}

int Answer(const absl::Status& status) {
  if (status.ok()) return CUDA_SUCCESS;
  return Refuse(ResultOf(status), std::string(status.message()));
}

// Runs `body`, which returns a CUresult; whatever is thrown below (bad_alloc) becomes one.
template <typename Body>
int Guarded(Body body) {
  try {
    LastError().clear();
    return body();
  } catch (const std::exception& failure) {
    return Refuse(CUDA_ERROR_UNKNOWN, failure.what());
  }
}

int NotInitialised() { return Refuse(CUDA_ERROR_NOT_INITIALIZED, "Spillway is not running in this process"); }

// The budget times PyTorch's fraction, as a cap of live bytes.
absl::Status CheckFraction(const Runtime& runtime, allocator::Residency* residency, int device,
                           size_t bytes) {
  const double fraction = runtime.Fraction(device);
  if (fraction >= 1.0) return absl::OkStatus();
  const allocator::ResidencyStats stats = residency->Stats();
  const auto limit = static_cast<uint64_t>(fraction * static_cast<double>(stats.budget_bytes));
  if (stats.live_bytes + bytes <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("blocks of ", BytesText(stats.live_bytes), " are live and ", BytesText(bytes),
                   " more are asked for; the process may have ", BytesText(limit)));
}

int Allocate(int device, size_t bytes, void* stream, void** pointer) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    if (runtime == nullptr) return NotInitialised();
    if (bytes == 0 || pointer == nullptr)
      return Refuse(CUDA_ERROR_INVALID_VALUE, "no bytes, or no place for them");
    auto residency = runtime->Device(device);
    if (!residency.ok()) return Answer(residency.status());
    if (absl::Status status = CheckFraction(*runtime, *residency, device, bytes); !status.ok())
      return Answer(status);
    auto address = (*residency)->Allocate(bytes, {static_cast<CUstream>(stream), false});
    if (!address.ok()) return Answer(address.status());
    *pointer = reinterpret_cast<void*>(*address);
    return static_cast<int>(CUDA_SUCCESS);
  });
}

int Free(void* pointer) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    allocator::Residency* residency = runtime == nullptr ? nullptr : runtime->Owner(pointer);
    if (residency == nullptr) return NotInitialised();
    NoteBlockFreed(reinterpret_cast<uint64_t>(pointer));
    return Answer(residency->Free(reinterpret_cast<CUdeviceptr>(pointer)));
  });
}

int RecordStream(void* pointer, void* stream) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    allocator::Residency* residency = runtime == nullptr ? nullptr : runtime->Owner(pointer);
    if (residency == nullptr) return NotInitialised();
    return Answer(
        residency->RecordStream(reinterpret_cast<CUdeviceptr>(pointer), static_cast<CUstream>(stream)));
  });
}

int Owns(const void* pointer) {
  const Runtime* runtime = Runtime::Get();
  return runtime != nullptr && runtime->Owns(pointer) ? 1 : 0;
}

int FindRange(const void* pointer, void** base, size_t* bytes) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    allocator::Residency* residency = runtime == nullptr ? nullptr : runtime->Owner(pointer);
    if (residency == nullptr) return NotInitialised();
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
    if (residency == nullptr) return NotInitialised();
    return Answer(residency->EmptyCache());
  });
}

int MemoryInfo(int device, size_t* free_bytes, size_t* total_bytes) {
  return Guarded([&] {
    allocator::Residency* residency = Existing(device);
    if (residency == nullptr) return NotInitialised();
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
    if (out == nullptr) return Refuse(CUDA_ERROR_INVALID_VALUE, "no place for the figures");
    *out = {};
    allocator::Residency* residency = Existing(device);
    if (residency == nullptr) return NotInitialised();
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

int HeldBytes(int device, size_t* now, size_t* peak) {
  allocator::Residency* residency = Existing(device);
  if (residency == nullptr) return NotInitialised();
  const allocator::Residency::HeldChunks held = residency->ChunksHeld();
  *now = held.bytes;
  *peak = held.peak_bytes;
  return CUDA_SUCCESS;
}

int SetFraction(int device, double fraction) {
  return Guarded([&] {
    Runtime* runtime = Runtime::Get();
    if (runtime == nullptr) return NotInitialised();
    if (!(fraction >= 0 && fraction <= 1)) return Refuse(CUDA_ERROR_INVALID_VALUE, "a fraction lies in 0..1");
    runtime->SetFraction(device, fraction);
    return static_cast<int>(CUDA_SUCCESS);
  });
}

const char* LastErrorText() { return LastError().c_str(); }

// Hands a text out as spillway.h says.
int HandOut(const std::string& from, char* text, size_t bytes, size_t* needed) {
  if (needed == nullptr) return Refuse(CUDA_ERROR_INVALID_VALUE, "no place for the size of the text");
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
    if (runtime == nullptr || runtime->dead()) return NotInitialised();
    return HandOut(MetricsJson(runtime->CurrentFigures()), text, bytes, needed);
  });
}

int LastRefusalText(char* text, size_t bytes, size_t* needed) {
  return Guarded([&] { return HandOut(LastRefusal::Get().Text(), text, bytes, needed); });
}

int MarkStep() {
  Runtime* runtime = Runtime::Get();
  if (runtime == nullptr || runtime->dead()) return NotInitialised();
  runtime->MarkStep();
  return CUDA_SUCCESS;
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
    &SetFraction,
    &LastErrorText,
    &StatsJson,
    &LastRefusalText,
    &HeldBytes,
    &MarkStep,
};

}  // namespace

const spillway_api* GetApi() { return &kApi; }

}  // namespace spillway::integration
