// The part of SpillwayAllocator that hands out and takes back blocks. allocator_reports.cc has the reports,
// allocator_forward.cc the calls that go to native.

#include "integration/torch/allocator.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <optional>
#include <tuple>
#include <utility>

namespace spillway::integration {
namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kNotInitialized = 3;  // not started, after fork, or shut down
constexpr int kTimeout = 909;       // a wait that the user has limited (SPILLWAY_WAIT_LIMIT)
constexpr int kUnknown = 999;       // a failure of the engine's own
constexpr size_t kExabyte = size_t{1} << 60;

// Returns whether work on `stream` is being captured into a graph. The legacy stream cannot be asked while
// another stream of the process captures. This counts, too, since memory for it could not be taken from a
// pool of ours.
bool IsCapturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  if (error == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  (void)cudaGetLastError();  // not the caller's error
  return error == cudaErrorStreamCaptureImplicit;
}

}  // namespace

SpillwayAllocator* SpillwayAllocator::instance_ = nullptr;

SpillwayAllocator::SpillwayAllocator(const spillway_api* api, CUDAAllocator* native)
    : CompatAllocator(native), api_(api), native_deleter_(native->raw_deleter()), pool_memory_(api) {
  for (std::atomic<double>& fraction : fractions_) fraction.store(1.0, std::memory_order_relaxed);
  for (std::atomic<size_t>& limit : limits_) limit.store(kNoLimit, std::memory_order_relaxed);
}

SpillwayAllocator* SpillwayAllocator::Install(const spillway_api* api) {
  CUDAAllocator* native = torch_cuda::allocator.load();
  instance_ = new SpillwayAllocator(api, native);
  torch_cuda::allocator.store(instance_);
  // torch.accelerator and c10::GetAllocator look here; PyTorch's own entry has priority 0 or 1.
  c10::SetAllocator(c10::DeviceType::CUDA, instance_, 255);
  if (api->on_kernel_table != nullptr) (void)api->on_kernel_table(&SpillwayAllocator::ReportNativeFrees);
  return instance_;
}

// ---- Handing out.

c10::DataPtr SpillwayAllocator::allocate(size_t bytes) {
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < kExabyte,
                   "CUDA out of memory. Tried to allocate more than 1EB memory.");
  if (bytes < api_->smallest_block_bytes) return AdoptNative(native_->allocate(bytes), bytes);
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
  if (IsOurs(bytes, device, stream)) {
    if (void* pointer = AllocateOurs(bytes, device, stream)) {
      return {pointer, pointer, &SpillwayAllocator::Delete, c10::Device(c10::DeviceType::CUDA, device)};
    }
  }
  return AdoptNative(native_->allocate(bytes), bytes);
}

void* SpillwayAllocator::raw_alloc(size_t bytes) {
  if (bytes == 0) return nullptr;
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return raw_alloc_with_stream(bytes, c10::cuda::getCurrentCUDAStream(device).stream());
}

void* SpillwayAllocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return nullptr;
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  if (IsOurs(bytes, device, stream)) {
    if (void* pointer = AllocateOurs(bytes, device, stream)) return pointer;
  }
  void* pointer = native_->raw_alloc_with_stream(bytes, stream);
  RecordNativeAllocation(bytes, device);
  return pointer;
}

bool SpillwayAllocator::IsOurs(size_t bytes, c10::DeviceIndex device, cudaStream_t stream) {
  if (bytes < api_->smallest_block_bytes || fork_.InChild()) return false;
  return native_.isEnabled() && raw_deleter() == &SpillwayAllocator::Delete &&
         !pools_.Claims(device, stream) && !IsCapturing(stream);
}

void SpillwayAllocator::CheckEngine(int result, const char* what) const {
  if (result == kSuccess || result == kNotInitialized) return;
  const bool own = result == kInvalidValue || result == kTimeout || result == kUnknown;
  if (!own) C10_CUDA_CHECK(static_cast<cudaError_t>(result));
  TORCH_CHECK(false, "Spillway could not ", what, ": ", api_->last_error());
}

// The order is native's: allocate; run the callbacks that free memory, and try again; release what is cached,
// and try again; out of memory.
void* SpillwayAllocator::AllocateOurs(size_t bytes, c10::DeviceIndex device, cudaStream_t stream) {
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < kExabyte,
                   "CUDA out of memory. Tried to allocate more than 1EB memory.");
  TraceLog::Context context = trace_.Gather(torch_cuda::RecordContext::STATE);
  void* pointer = nullptr;
  int result = api_->allocate(device, bytes, stream, &pointer);
  if (result == kOutOfMemory && RunFreeMemoryCallbacks())
    result = api_->allocate(device, bytes, stream, &pointer);
  if (result == kOutOfMemory) {
    // Native does not allow it while one of its pools is open: a graph may be under capture there.
    if (!pools_.AnyOpen()) EmptyNativeCache(kNoPool);
    (void)api_->empty_cache(device);
    LedgerOf(device).RecordRetry();
    result = api_->allocate(device, bytes, stream, &pointer);
  }
  if (result == kNotInitialized) return nullptr;
  if (result == kOutOfMemory) Refuse(bytes, device, stream, std::move(context));
  CheckEngine(result, "allocate");
  Enlist(pointer, bytes, device, stream, std::move(context));
  return pointer;
}

void SpillwayAllocator::Enlist(void* pointer, size_t bytes, c10::DeviceIndex device, cudaStream_t stream,
                               TraceLog::Context context) {
  const size_t counted = DeviceLedger::CountedBytes(bytes);
  size_t reserved = 0;
  size_t reserved_peak = 0;
  GetReserved(device, &reserved, &reserved_peak);
  const auto native = [&] { return native_->getDeviceStats(device); };
  LedgerOf(device).Add(pointer, {bytes, counted, stream, context}, native, reserved, reserved_peak);
  if (trace_.active()) {
    const auto address = reinterpret_cast<size_t>(pointer);
    const std::string metadata = native_.getUserMetadata();
    trace_.Record(TraceLog::Entry::SEGMENT_ALLOC, device, address, counted, stream, context, metadata);
    trace_.Record(TraceLog::Entry::ALLOC, device, address, bytes, stream, std::move(context), metadata);
  }
  ReportToProfiler(pointer, static_cast<int64_t>(counted), device);
  if (const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace()) {
    (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(pointer));
  }
}

void SpillwayAllocator::Refuse(size_t bytes, c10::DeviceIndex device, cudaStream_t stream,
                               TraceLog::Context context) {
  Refusal refusal;
  refusal.device = device;
  refusal.requested = bytes;
  const size_t limit = limits_[static_cast<size_t>(device)].load(std::memory_order_relaxed);
  refusal.reason = api_->last_error();
  std::tie(refusal.free, refusal.total) = getMemoryInfo(device);
  // Memory that idle blocks could free is left out, since it did not help.
  spillway_device_stats ours = {};
  if (api_->device_stats(device, &ours) == 0) {
    const size_t most = std::min(refusal.total, limit);
    refusal.free = std::min(refusal.free, most - std::min<size_t>(most, ours.chunk_bytes));
  }
  if (limit != kNoLimit) refusal.allowed = limit;
  const auto stats = getDeviceStats(device);
  refusal.allocated = static_cast<size_t>(stats.allocated_bytes[0].current);
  refusal.reserved = static_cast<size_t>(stats.reserved_bytes[0].current);
  LedgerOf(device).RecordOutOfMemory();
  if (trace_.active()) {
    trace_.Record(TraceLog::Entry::OOM, device, refusal.free, bytes, stream, std::move(context),
                  native_.getUserMetadata());
  }
  std::vector<torch_cuda::OutOfMemoryObserver> observers;
  {
    os::MutexLock lock(&mu_);
    observers = observers_;
  }
  ThrowOutOfMemory(refusal, observers);
}

// ---- Taking back.

void SpillwayAllocator::Delete(void* pointer) {
  if (pointer != nullptr) instance_->Free(pointer);
}

void SpillwayAllocator::raw_delete(void* pointer) { Delete(pointer); }

void SpillwayAllocator::Free(void* pointer) {
  if (!Owns(pointer)) {
    native_->raw_delete(pointer);
    return;
  }
  if (fork_.InChild()) return;
  const TraceLog::Context stack = trace_.Gather(torch_cuda::RecordContext::ALL);
  const int devices = device_count_.load(std::memory_order_relaxed);
  for (c10::DeviceIndex device = 0; device < devices; ++device) {
    if (!LedgerOf(device).used()) continue;
    std::optional<LedgerBlock> block = LedgerOf(device).Remove(pointer);
    if (!block) continue;
    if (trace_.active()) {
      // A block that recordStream named is free a little later, when the engine sees that stream's work done.
      // PyTorch learns of it here.
      const auto address = reinterpret_cast<size_t>(pointer);
      const TraceLog::Context& context = stack ? stack : block->context;
      const std::string metadata = native_.getUserMetadata();
      for (auto action : {TraceLog::Entry::FREE_REQUESTED, TraceLog::Entry::FREE_COMPLETED}) {
        trace_.Record(action, device, address, block->requested, block->stream, context, metadata);
      }
      trace_.Record(TraceLog::Entry::SEGMENT_FREE, device, address, block->counted, block->stream, context,
                    metadata);
    }
    ReportToProfiler(pointer, -static_cast<int64_t>(block->counted), device);
    break;
  }
  if (const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace()) {
    (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(pointer));
  }
  // Deleters must not throw for an error of the device, which is not the caller's. The next call that asks
  // raises it.
  TORCH_CHECK(api_->free(pointer) != kInvalidValue, "invalid device pointer: ", pointer,
              " (Spillway: ", api_->last_error(), ")");
}

// Native's recordStream, and code that compares deleters, must not meet two kinds.
c10::DataPtr SpillwayAllocator::Adopt(c10::DataPtr pointer) const {
  (void)pointer.compare_exchange_deleter(native_deleter_, &SpillwayAllocator::Delete);
  return pointer;
}

c10::DataPtr SpillwayAllocator::AdoptNative(c10::DataPtr pointer, size_t bytes) {
  c10::DataPtr adopted = Adopt(std::move(pointer));
  RecordNativeAllocation(bytes, adopted.device().index());
  return adopted;
}

c10::DeleterFnPtr SpillwayAllocator::raw_deleter() const {
  const c10::DeleterFnPtr deleter = native_->raw_deleter();
  return deleter == native_deleter_ ? &SpillwayAllocator::Delete : deleter;  // otherwise caching is off
}

void SpillwayAllocator::recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) {
  if (pointer.get() == nullptr || pointer.get_deleter() != &SpillwayAllocator::Delete) return;
  if (!Owns(pointer.get())) {
    // Native takes the pointer only with its own deleter; the copy must not free it.
    c10::DataPtr as_native(pointer.get(), pointer.get(), native_deleter_, pointer.device());
    native_->recordStream(as_native, stream);
    (void)as_native.release_context();
    return;
  }
  const std::optional<LedgerBlock> block = LedgerOf(pointer.device().index()).Find(pointer.get());
  // The allocation's own stream needs no record. A default stream has the same handle on every device.
  const bool same_device = pointer.device().index() == stream.device_index();
  if (block && same_device && block->stream == stream.stream()) return;
  const c10::cuda::CUDAGuard guard(stream.device_index());
  CheckEngine(api_->record_stream(pointer.get(), stream.stream()), "record a stream");
}

}  // namespace spillway::integration
