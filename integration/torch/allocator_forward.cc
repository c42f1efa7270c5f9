// The part of SpillwayAllocator that passes calls on to native, or that concerns both allocators alike.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <utility>

#include "integration/torch/allocator.h"

namespace spillway::integration {

namespace {

bool VariablesName(const char* key) {
  for (const char* variable : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    const auto value = PyTorchVariable(variable);
    if (value && value->find(key) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void SpillwayAllocator::init(int device_count) {
  native_->init(device_count);
  device_count_.store(device_count);
  // The key per_process_memory_fraction of PyTorch's variable applies to our blocks, too.
  if (!kFractionKeepsDevice && !VariablesName("per_process_memory_fraction")) return;
  const c10::cuda::CUDAGuard guard(c10::cuda::current_device());  // restores the current device
  for (c10::DeviceIndex device = 0; device < device_count; ++device) {
    const double fraction = native_.getMemoryFraction(device);
    if (fraction < 1.0) setMemoryFraction(fraction, device);
  }
}

bool SpillwayAllocator::initialized() { return native_->initialized(); }

void SpillwayAllocator::copy_data(void* destination, const void* source, size_t count) const {
  native_->copy_data(destination, source, count);
}

// Native's bytes are about to fall, so their part of the common peaks counts now.
void SpillwayAllocator::EmptyNativeCache(PoolId pool) {
  for (c10::DeviceIndex device = 0; device < device_count_.load(); ++device)
    RecordNativeAllocation(SIZE_MAX, device);
  native_.emptyCache(pool);
}

void SpillwayAllocator::emptyCache(PoolId pool) {
  EmptyNativeCache(pool);
  for (c10::DeviceIndex device = 0; device < device_count_.load(); ++device) {
    const bool used = pool == kNoPool && LedgerOf(device).used();
    if (used || pool_memory_.used(device)) CheckEngine(api_->empty_cache(device), "empty its cache");
  }
}

double SpillwayAllocator::getMemoryFraction(c10::DeviceIndex device) {
  return fractions_[static_cast<size_t>(device)].load(std::memory_order_relaxed);
}

void SpillwayAllocator::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  native_->setMemoryFraction(fraction, device);
  const auto place = static_cast<size_t>(device);
  fractions_[place].store(fraction, std::memory_order_relaxed);
  size_t limit = kNoLimit;
  if (fraction < 1.0) {
    size_t total = 0;
    if (api_->device_bytes(device, &total) != 0) total = getMemoryInfo(device).second;
    limit = static_cast<size_t>(fraction * static_cast<double>(total));
  }
  limits_[place].store(limit, std::memory_order_relaxed);
  CheckEngine(api_->set_memory_cap(device, limit), "limit its memory");
}

// ---- Private pools.

void SpillwayAllocator::beginAllocateToPool(c10::DeviceIndex device, PoolId pool,
                                            std::function<bool(cudaStream_t)> filter) {
  const bool made = pools_.AddUser(device, pool) && MakePool(device, pool);
  native_->beginAllocateToPool(device, pool, filter);
  if (made) native_->releasePool(device, pool);  // a call that begins makes a user; we are none
  pools_.Begin(device, pool, std::move(filter));
}

std::shared_ptr<torch_cuda::CUDAAllocator> SpillwayAllocator::PoolAllocator(c10::DeviceIndex device) {
  if (!NativeForms::kMakesPools || !native_.isEnabled() || fork_.InChild()) return nullptr;
  const auto& allocator = pool_memory_.Allocator();
  const bool starts = !LedgerOf(device).used() && !pool_memory_.used(device);
  if (allocator != nullptr && starts) pool_memory_.Start(device);
  return allocator;
}

// Native would make the pool at its first use, with memory of the driver.
bool SpillwayAllocator::MakePool(c10::DeviceIndex device, PoolId pool) {
  const auto allocator = PoolAllocator(device);
  if (allocator == nullptr) return false;
  try {
    native_.MakePool(device, pool, allocator);
    return true;
  } catch (const c10::Error&) {
    return false;  // it is older than our installation
  }
}

void SpillwayAllocator::endAllocateToPool(c10::DeviceIndex device, PoolId pool) {
  pools_.End(device, pool);
  native_->endAllocateToPool(device, pool);
}

void SpillwayAllocator::releasePool(c10::DeviceIndex device, PoolId pool) {
  pools_.RemoveUser(device, pool);
  native_->releasePool(device, pool);
}

bool SpillwayAllocator::checkPoolLiveAllocations(c10::DeviceIndex device, PoolId pool,
                                                 const std::unordered_set<void*>& expected) {
  return native_->checkPoolLiveAllocations(device, pool, expected);
}

std::shared_ptr<torch_cuda::AllocatorState> SpillwayAllocator::getCheckpointState(c10::DeviceIndex device,
                                                                                  PoolId pool) {
  return native_->getCheckpointState(device, pool);
}

torch_cuda::CheckpointDelta SpillwayAllocator::setCheckpointPoolState(
    c10::DeviceIndex device, std::shared_ptr<torch_cuda::AllocatorState> state) {
  torch_cuda::CheckpointDelta delta = native_->setCheckpointPoolState(device, std::move(state));
  for (c10::DataPtr& pointer : delta.dataptrs_allocd) pointer = Adopt(std::move(pointer));
  RecordNativeAllocation(SIZE_MAX, device);  // any number of blocks
  return delta;
}

// ---- Other processes and devices.

void SpillwayAllocator::RefuseToShareOurs(const void* pointer) const {
  TORCH_CHECK(
      api_->owns(pointer) == 0,
      "Spillway: a CUDA tensor of more than 1 MiB cannot be shared with another process by CUDA IPC while "
      "its memory may leave the GPU. Send a CPU copy (tensor.cpu()), or allocate what is to be shared "
      "inside torch.cuda.use_mem_pool(spillway.unmanaged_pool()), which Spillway leaves alone.");
}

std::shared_ptr<void> SpillwayAllocator::getIpcDevPtr(std::string handle) {
  return native_->getIpcDevPtr(std::move(handle));
}

void SpillwayAllocator::enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) {
  native_->enablePeerAccess(device, peer);
}

// Our blocks are mapped on their own device only, so a copy between devices needs the peer form even with
// peer access enabled.
cudaError_t SpillwayAllocator::memcpyAsync(void* destination, int destination_device, const void* source,
                                           int source_device, size_t count, cudaStream_t stream,
                                           bool p2p_enabled) {
  if (destination_device != source_device && (api_->owns(destination) != 0 || api_->owns(source) != 0)) {
    return cudaMemcpyPeerAsync(destination, destination_device, source, source_device, count, stream);
  }
  return native_->memcpyAsync(destination, destination_device, source, source_device, count, stream,
                              p2p_enabled);
}

}  // namespace spillway::integration
