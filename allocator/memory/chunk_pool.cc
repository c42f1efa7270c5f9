#include "allocator/memory/chunk_pool.h"

#include <algorithm>
#include <chrono>

#include "io/os/errno.h"
#include "io/os/thread.h"

namespace spillway::allocator {
namespace {

// NOT_READY from cuMemSetAccess goes away by itself. Published reports needed one retry; these are ten over
// 20 ms.
constexpr int kSetAccessTries = 10;

CUmemAllocationProp PropertiesFor(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

CUresult SetAccess(const CudaDriver* driver, int device, uint64_t address, uint64_t bytes) {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < kSetAccessTries; ++i) {
    result = driver->cuMemSetAccess(address, bytes, &access, 1);
    if (result != CUDA_ERROR_NOT_READY) break;
    os::SleepFor(std::chrono::microseconds(100 << std::min(i, 5)));
  }
  return result;
}

}  // namespace

uint64_t ChunkPool::TakeFree(uint64_t count, std::vector<ChunkHandle>* taken) {
  count = std::min<uint64_t>(count, free_.size());
  taken->insert(taken->end(), free_.end() - count, free_.end());
  free_.resize(free_.size() - count);
  return count;
}

void ChunkPool::Give(std::vector<ChunkHandle>* chunks) {
  free_.insert(free_.end(), chunks->begin(), chunks->end());
  chunks->clear();
}

uint64_t ChunkPool::BeginCreate(uint64_t count) {
  const uint64_t allowed = target_ > created_ ? target_ - created_ : 0;
  count = std::min(count, allowed);
  created_ += count;
  peak_created_ = std::max(peak_created_, created_);
  return count;
}

uint64_t ChunkPool::BeginRelease(uint64_t count, std::vector<ChunkHandle>* chunks) {
  count = TakeFree(count, chunks);
  created_ -= count;
  return count;
}

absl::Status CreateChunk(const CudaDriver* driver, int device, uint64_t chunk_bytes, ChunkHandle* chunk) {
  const CUmemAllocationProp properties = PropertiesFor(device);
  return driver->ToStatus(driver->cuMemCreate(chunk, chunk_bytes, &properties, 0),
                          "creating a chunk of " + std::to_string(chunk_bytes) + " bytes");
}

absl::Status ReleaseChunk(const CudaDriver* driver, ChunkHandle chunk) {
  return driver->ToStatus(driver->cuMemRelease(chunk), "releasing a chunk");
}

absl::Status MapChunks(const CudaDriver* driver, int device, uint64_t address, uint64_t chunk_bytes,
                       const std::vector<ChunkHandle>& chunks, bool* stays_mapped) {
  CUresult result = CUDA_SUCCESS;
  size_t mapped = 0;
  for (; mapped < chunks.size(); ++mapped) {
    result = driver->cuMemMap(address + mapped * chunk_bytes, chunk_bytes, 0, chunks[mapped], 0);
    if (result != CUDA_SUCCESS) break;
  }
  const char* what = "mapping chunks";
  if (result == CUDA_SUCCESS) {
    what = "making mapped chunks accessible";
    result = SetAccess(driver, device, address, chunk_bytes * chunks.size());
  }
  if (result != CUDA_SUCCESS && mapped > 0) {
    *stays_mapped = driver->cuMemUnmap(address, mapped * chunk_bytes) != CUDA_SUCCESS;
  }
  return driver->ToStatus(result, what);
}

absl::Status GrantAccess(const CudaDriver* driver, int device, uint64_t address, uint64_t bytes) {
  return driver->ToStatus(SetAccess(driver, device, address, bytes),
                          "making a block accessible to another GPU");
}

absl::Status UnmapChunks(const CudaDriver* driver, uint64_t address, uint64_t bytes) {
  return driver->ToStatus(driver->cuMemUnmap(address, bytes), "unmapping a block");
}

}  // namespace spillway::allocator
