#include "allocator/memory/chunk_pool.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "io/os/check.h"
#include "io/os/errno.h"
#include "io/os/thread.h"

namespace spillway::allocator {
namespace {

// NOT_READY from cuMemSetAccess goes away by itself. Published reports needed one retry; these are ten tries
// over 20 ms.
constexpr int kSetAccessTries = 10;
// A driver may clear released memory before it gives it out again, and refuses requests meanwhile: reportedly
// for up to 200 ms. These are 90 tries over 280 ms.
constexpr int kCreateTries = 90;

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
    result = driver->memory_turn->Run([&] { return driver->cuMemSetAccess(address, bytes, &access, 1); });
    if (result != CUDA_ERROR_NOT_READY) break;
    os::SleepFor(std::chrono::microseconds(100 << std::min(i, 5)));
  }
  return result;
}

absl::Status Create(const CudaDriver* driver, int device, uint64_t bytes,
                    CUmemGenericAllocationHandle* handle) {
  const CUmemAllocationProp properties = PropertiesFor(device);
  const CUresult result =
      driver->memory_turn->Run([&] { return driver->cuMemCreate(handle, bytes, &properties, 0); });
  return driver->ToStatus(result, "creating " + std::to_string(bytes) + " bytes of GPU memory");
}

CUresult Map(const CudaDriver* driver, uint64_t address, uint64_t bytes,
             CUmemGenericAllocationHandle handle) {
  return driver->memory_turn->Run([&] { return driver->cuMemMap(address, bytes, 0, handle, 0); });
}

CUresult Unmap(const CudaDriver* driver, uint64_t address, uint64_t bytes) {
  return driver->memory_turn->Run([&] { return driver->cuMemUnmap(address, bytes); });
}

}  // namespace

uint64_t ChunksOf(const std::vector<ChunkHandle>& handles) {
  uint64_t chunks = 0;
  for (const ChunkHandle& handle : handles) chunks += handle.chunks;
  return chunks;
}

// ---- The account.

ChunkPool::ChunkPool(uint32_t largest) : largest_(largest), free_(std::bit_width(largest)) {
  SPILLWAY_CHECK(std::has_single_bit(largest));
}

std::vector<uint32_t> ChunkPool::PartsOf(uint64_t chunks) const {
  std::vector<uint32_t> parts(chunks / largest_, largest_);
  for (uint32_t size = largest_ / 2; size > 0; size /= 2) {
    if (chunks & size) parts.push_back(size);
  }
  return parts;
}

bool ChunkPool::TakeOfSize(uint32_t chunks, std::vector<ChunkHandle>* taken) {
  std::vector<ChunkHandle>& free = free_[std::countr_zero(chunks)];
  if (free.empty()) return false;
  taken->push_back(free.back());
  free.pop_back();
  free_chunks_ -= chunks;
  return true;
}

// Takes the smallest handle that suffices alone, or else the largest, until the chunks are enough.
void ChunkPool::TakeAtLeast(uint64_t chunks, std::vector<ChunkHandle>* taken) {
  while (chunks > 0 && free_chunks_ > 0) {
    uint32_t size = 1;
    while (size < largest_ && (size < chunks || free_[std::countr_zero(size)].empty())) size *= 2;
    while (free_[std::countr_zero(size)].empty()) size /= 2;
    TakeOfSize(size, taken);
    chunks -= std::min<uint64_t>(chunks, size);
  }
}

bool ChunkPool::Begin(const std::vector<uint64_t>& blocks, Supply* supply) {
  uint64_t needed = 0;
  for (const uint64_t chunks : blocks) needed += chunks;
  if (available() < needed) return false;
  uint64_t lacking = 0;
  for (const uint64_t chunks : blocks) {
    for (const uint32_t part : PartsOf(chunks)) {
      if (TakeOfSize(part, &supply->handles)) continue;
      supply->to_create.push_back(part);
      lacking += part;
    }
  }
  // The lacking chunks come from growth up to the target, and then from free handles of other sizes.
  // TakeAtLeast may take more of these than are lacking. The surplus goes back to the driver and is not
  // created again; it counts as created until End.
  const uint64_t growth = target_ > created_ ? std::min(lacking, target_ - created_) : 0;
  TakeAtLeast(lacking - growth, &supply->to_release);
  const uint64_t released = ChunksOf(supply->to_release);
  supply->more_released = released - std::min(released, lacking);
  releasing_ += supply->more_released;
  created_ += lacking - std::min(released, lacking);
  peak_created_ = std::max(peak_created_, created_);
  return true;
}

void ChunkPool::End(Supply* supply) {
  for (const uint32_t chunks : supply->to_create) created_ -= chunks;
  supply->to_create.clear();
  EndRelease(std::exchange(supply->more_released, 0));
}

bool ChunkPool::TakeAsTheyAre(const std::vector<uint64_t>& blocks, std::vector<ChunkHandle>* taken) {
  for (uint64_t chunks : blocks) {
    for (uint32_t size = largest_; size > 0 && chunks > 0; size /= 2) {
      while (size <= chunks && TakeOfSize(size, taken)) chunks -= size;
    }
    if (chunks == 0) continue;
    Give(taken);
    return false;
  }
  return true;
}

std::vector<ChunkHandle> ChunkPool::Portion(uint64_t chunks, std::vector<ChunkHandle>* handles) {
  std::ranges::sort(*handles, std::greater<>(), &ChunkHandle::chunks);
  std::vector<ChunkHandle> portion, rest;
  for (const ChunkHandle& handle : *handles) {
    const bool fits = handle.chunks <= chunks;
    (fits ? portion : rest).push_back(handle);
    if (fits) chunks -= handle.chunks;
  }
  if (chunks > 0) return {};
  *handles = std::move(rest);
  return portion;
}

void ChunkPool::Give(std::vector<ChunkHandle>* handles) {
  for (const ChunkHandle& handle : *handles) free_[std::countr_zero(handle.chunks)].push_back(handle);
  free_chunks_ += ChunksOf(*handles);
  handles->clear();
}

uint64_t ChunkPool::BeginRelease(uint64_t chunks, std::vector<ChunkHandle>* handles) {
  const uint64_t before = free_chunks_;
  TakeAtLeast(std::min(chunks, free_chunks_), handles);
  releasing_ += before - free_chunks_;
  return before - free_chunks_;
}

void ChunkPool::EndRelease(uint64_t chunks) {
  created_ -= chunks;
  releasing_ -= chunks;
}

// ---- Calls of the driver.

absl::Status Make(const CudaDriver* driver, int device, uint64_t chunk_bytes, Supply* supply) {
  const bool released = !supply->to_release.empty();
  absl::Status status = Release(driver, supply->to_release);
  supply->to_release.clear();
  while (status.ok() && !supply->to_create.empty()) {
    ChunkHandle made{0, supply->to_create.back()};
    // The driver may need a moment before it gives released memory out again.
    for (int i = 0; i < (released ? kCreateTries : 1); ++i) {
      if (i > 0) os::SleepFor(std::chrono::microseconds(100 << std::min(i, 5)));
      status = Create(driver, device, made.chunks * chunk_bytes, &made.handle);
      if (!absl::IsResourceExhausted(status)) break;
    }
    if (!status.ok()) break;
    supply->handles.push_back(made);
    supply->to_create.pop_back();
  }
  return status;
}

absl::Status Release(const CudaDriver* driver, const std::vector<ChunkHandle>& handles) {
  absl::Status status;
  for (const ChunkHandle& handle : handles) {
    const CUresult result = driver->memory_turn->Run([&] { return driver->cuMemRelease(handle.handle); });
    status.Update(driver->ToStatus(result, "releasing GPU memory"));
  }
  return status;
}

absl::Status MapChunks(const CudaDriver* driver, int device, uint64_t address, uint64_t chunk_bytes,
                       const std::vector<ChunkHandle>& handles, bool* stays_mapped) {
  CUresult result = CUDA_SUCCESS;
  uint64_t mapped = 0;  // bytes
  for (const ChunkHandle& handle : handles) {
    const uint64_t bytes = handle.chunks * chunk_bytes;
    result = Map(driver, address + mapped, bytes, handle.handle);
    if (result != CUDA_SUCCESS) break;
    mapped += bytes;
  }
  const char* what = "mapping chunks";
  if (result == CUDA_SUCCESS) {
    what = "making mapped chunks accessible";
    result = SetAccess(driver, device, address, mapped);
  }
  if (result != CUDA_SUCCESS && mapped > 0) {
    *stays_mapped = Unmap(driver, address, mapped) != CUDA_SUCCESS;
  }
  return driver->ToStatus(result, what);
}

absl::Status GrantAccess(const CudaDriver* driver, int device, uint64_t address, uint64_t bytes) {
  return driver->ToStatus(SetAccess(driver, device, address, bytes),
                          "making a block accessible to another GPU");
}

absl::Status UnmapChunks(const CudaDriver* driver, uint64_t address, uint64_t bytes) {
  return driver->ToStatus(Unmap(driver, address, bytes), "unmapping a block");
}

}  // namespace spillway::allocator
