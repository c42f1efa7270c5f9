#include "integration/torch/pool_memory.h"

#include <dlfcn.h>

#include <functional>
#include <utility>

namespace spillway::integration {
namespace {

constexpr int kEngineRests = 3;  // CUDA_ERROR_NOT_INITIALIZED: at the exit, or in a forked child

using AllocateFunction = std::function<void*(size_t, int, cudaStream_t)>;
using FreeFunction = std::function<void(void*, size_t, int, cudaStream_t)>;
using MakeAllocator = std::shared_ptr<torch_cuda::CUDAAllocator> (*)(AllocateFunction, FreeFunction);

// torch::cuda::CUDAPluggableAllocator::createCustomAllocator(AllocateFunction, FreeFunction). Looked up,
// since libtorch_cuda is a gigabyte that nothing else here needs to be linked against.
constexpr char kMakeAllocator[] =
    "_ZN5torch4cuda22CUDAPluggableAllocator21createCustomAllocatorESt8functionIFPvmiP11CUstream_stEES2_"
    "IFvS3_miS5_EE";

MakeAllocator FindMakeAllocator() {
  void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<MakeAllocator>(dlsym(library, kMakeAllocator));
}

// Calls that a capture under way elsewhere in the process would forbid may be made: none of them touches it.
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
  cudaStream_t& owner = owners_[static_cast<size_t>(device)];
  if (owner == nullptr && cudaStreamCreateWithFlags(&owner, cudaStreamNonBlocking) != cudaSuccess) {
    (void)cudaGetLastError();  // native refuses in its own words
    owner = nullptr;
  }
  return owner;
}

// The engine gives a freed block to its stream at once, but what is captured on one stream is launched on
// any: segments have a stream of their own, so that they are never such blocks.
void* PoolMemory::Allocate(size_t bytes, int device) {
  const Relaxed relaxed;
  const cudaStream_t owner = OwnerOf(device);
  if (owner == nullptr) return nullptr;
  void* segment = nullptr;
  const int result = api_->allocate(device, bytes, owner, &segment);
  if (result == kEngineRests && cudaMalloc(&segment, bytes) == cudaSuccess) return segment;
  if (result != 0) return nullptr;
  const char* const start = static_cast<const char*>(segment);
  bytes_[static_cast<size_t>(device)].fetch_add(bytes, std::memory_order_relaxed);
  os::MutexLock lock(&mu_);
  ends_[start] = start + bytes;
  segments_.store(ends_.size(), std::memory_order_release);
  return segment;
}

// In place of cudaFree, which waits for the device as well. Native frees no segment while anything is
// captured.
void PoolMemory::Free(void* segment, size_t bytes, int device) {
  bool ours = false;
  {
    os::MutexLock lock(&mu_);
    ours = ends_.erase(static_cast<const char*>(segment)) != 0;
    segments_.store(ends_.size(), std::memory_order_release);
  }
  if (!ours) {
    (void)cudaFree(segment);
    return;
  }
  (void)cudaDeviceSynchronize();
  bytes_[static_cast<size_t>(device)].fetch_sub(bytes, std::memory_order_relaxed);
  (void)api_->free(segment);
}

}  // namespace spillway::integration
