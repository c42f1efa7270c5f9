#include "integration/torch/pool_memory.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <functional>
#include <utility>

namespace spillway::integration {
namespace {

// Answers of the engine: CUDA's codes.
enum EngineAnswer : int { kNoMemory = 2, kEngineRests = 3 };  // at the exit, or in a forked child

using AllocateFunction = std::function<void*(size_t, int, cudaStream_t)>;
using FreeFunction = std::function<void(void*, size_t, int, cudaStream_t)>;
using MakeAllocator = std::shared_ptr<torch_cuda::CUDAAllocator> (*)(AllocateFunction, FreeFunction);

// torch::cuda::CUDAPluggableAllocator::createCustomAllocator(AllocateFunction, FreeFunction). It is looked
// up, since libtorch_cuda is a gigabyte and nothing else here needs to be linked against it.
constexpr char kMakeAllocator[] =
    "_ZN5torch4cuda22CUDAPluggableAllocator21createCustomAllocatorESt8functionIFPvmiP11CUstream_stEES2_"
    "IFvS3_miS5_EE";

MakeAllocator FindMakeAllocator() {
  void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<MakeAllocator>(dlsym(library, kMakeAllocator));
}

// Allows calls that a capture elsewhere in the process would forbid; none of them touches the capture.
class Relaxed {
 public:
  Relaxed() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

const std::shared_ptr<torch_cuda::CUDAAllocator>& PoolMemory::Allocator() {
  os::MutexLock lock(&mu_);
  if (!std::exchange(looked_, true)) {
    if (const MakeAllocator make = FindMakeAllocator()) {
      allocator_ = make(
          [this](size_t bytes, int device, cudaStream_t) { return Allocate(bytes, device); },
          [this](void* segment, size_t bytes, int device, cudaStream_t) { Free(segment, bytes, device); });
    }
  }
  return allocator_;
}

bool PoolMemory::Contains(const void* pointer) const {
  if (segments_.load(std::memory_order_acquire) == 0) return false;
  const char* const address = static_cast<const char*>(pointer);
  os::MutexLock lock(&mu_);
  auto it = ends_.upper_bound(address);
  return it != ends_.begin() && address < (--it)->second;
}

cudaStream_t PoolMemory::OwnerOf(int device) {
  std::atomic<cudaStream_t>& owner = owners_[static_cast<size_t>(device)];
  cudaStream_t known = owner.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  cudaStream_t made = nullptr;
  if (cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking) != cudaSuccess) {
    (void)cudaGetLastError();  // native refuses with its own text
    return nullptr;
  }
  if (owner.compare_exchange_strong(known, made, std::memory_order_acq_rel)) return made;
  (void)cudaStreamDestroy(made);
  return known;
}

void PoolMemory::Start(c10::DeviceIndex device) {
  const cudaStream_t owner = OwnerOf(device);
  void* block = nullptr;
  if (owner != nullptr && api_->allocate_segment(device, api_->smallest_block_bytes, owner, &block) == 0)
    (void)api_->free(block);
}

// The engine gives a freed block to its stream at once, but a graph that is captured on one stream is
// launched on any. Segments have a stream of their own, so they are never such blocks.
void* PoolMemory::Allocate(size_t bytes, int device) {
  const Relaxed relaxed;
  const cudaStream_t owner = OwnerOf(device);
  if (owner == nullptr) return nullptr;
  void* segment = nullptr;
  const int result = api_->allocate_segment(device, bytes, owner, &segment);
  if (result == kEngineRests && cudaMalloc(&segment, bytes) == cudaSuccess) return segment;
  TORCH_CHECK(result == 0 || result == kNoMemory || result == kEngineRests,
              "Spillway could not allocate for a graph's pool: ", api_->last_error());
  if (result != 0) return nullptr;
  const char* const start = static_cast<const char*>(segment);
  bytes_[static_cast<size_t>(device)].fetch_add(bytes, std::memory_order_relaxed);
  used_[static_cast<size_t>(device)].store(true, std::memory_order_relaxed);
  os::MutexLock lock(&mu_);
  ends_[start] = start + bytes;
  segments_.store(ends_.size(), std::memory_order_release);
  return segment;
}

// Takes the place of cudaFree, and waits for the device as that does.
void PoolMemory::Free(void* segment, size_t bytes, int device) {
  {
    os::MutexLock lock(&mu_);
    const auto found = ends_.find(static_cast<const char*>(segment));
    if (found != ends_.end()) {
      ends_.erase(found);
      segments_.store(ends_.size(), std::memory_order_release);
      freed_.push_back({segment, device});
      bytes_[static_cast<size_t>(device)].fetch_sub(bytes, std::memory_order_relaxed);
      segment = nullptr;
    }
  }
  if (segment != nullptr) (void)cudaFree(segment);  // the segment was one of the driver's
  FreeLate();
}

// Frees segments whose device could not be waited for, which a capture in progress forbids: they are freed
// with later ones. Never called by an allocation, since waiting would end the capture that asks for it.
void PoolMemory::FreeLate() {
  std::vector<Freed> freed;
  {
    os::MutexLock lock(&mu_);
    freed.swap(freed_);
  }
  for (const Freed& one : freed) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(one.device));
    if (cudaDeviceSynchronize() == cudaSuccess) {
      (void)api_->free(one.segment);
      continue;
    }
    (void)cudaGetLastError();
    os::MutexLock lock(&mu_);
    freed_.push_back(one);
  }
}

}  // namespace spillway::integration

// Memory of the driver for a pool that is to have it (spillway.unmanaged_pool()), in the forms of
// torch.cuda.memory.CUDAPluggableAllocator. Called with native's lock held; null: native refuses.

extern "C" __attribute__((visibility("default"))) void* spillway_driver_allocate(size_t bytes, int,
                                                                                 cudaStream_t) {
  const spillway::integration::Relaxed relaxed;
  void* segment = nullptr;
  if (cudaMalloc(&segment, bytes) == cudaSuccess) return segment;
  (void)cudaGetLastError();
  return nullptr;
}

extern "C" __attribute__((visibility("default"))) void spillway_driver_free(void* segment, size_t, int,
                                                                            cudaStream_t) {
  (void)cudaFree(segment);
}
