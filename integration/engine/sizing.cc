#include "integration/engine/sizing.h"

#include <algorithm>
#include <bit>

namespace spillway::integration {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
// Staging of each direction that lets a disk work without pause: transfers under way, and as much between
// disk and GPU.
constexpr uint64_t kDiskOnlyBuffers = 12;

}  // namespace

DeviceBudget DefaultBudget(uint64_t free_bytes, uint64_t external_bytes) {
  const uint64_t reserve = std::min(free_bytes, std::clamp(free_bytes * 3 / 100, 32 * kMiB, kGiB));
  return {free_bytes - reserve + external_bytes, reserve};
}

uint64_t DefaultHostCap(uint64_t available_bytes, int local_world_size) {
  return available_bytes / 4 / static_cast<uint64_t>(std::max(1, local_world_size));
}

uint64_t ShareOfRank(uint64_t bytes, int ranks) {
  if (ranks <= 1 || bytes == 0) return bytes;
  // 0 would mean something else: no cap, or no host tier.
  return std::max(kChunkBytes, bytes / static_cast<uint64_t>(ranks) / kChunkBytes * kChunkBytes);
}

allocator::HostPool::Options HostPoolOptions(uint64_t cap_bytes, bool disk) {
  allocator::HostPool::Options options;
  options.buffer_bytes = kChunkBytes;
  options.evict_staging_buffers = 0;
  options.fault_staging_buffers = 0;
  const uint64_t buffers = cap_bytes / kChunkBytes;
  if (disk) {
    // More staging keeps more transfers under way, up to what a fast disk and the copy engine can use.
    // Without a host tier all there is goes through it: what keeps a disk busy, whatever the cap says.
    const uint64_t least_out =
        buffers == 0 ? kDiskOnlyBuffers : std::clamp<uint64_t>(buffers / 8, 2, kDiskOnlyBuffers);
    const uint64_t least_in =
        buffers == 0 ? kDiskOnlyBuffers : std::clamp<uint64_t>(buffers / 4, 2, kDiskOnlyBuffers);
    options.evict_staging_buffers = static_cast<int>(std::clamp<uint64_t>(buffers / 16, least_out, 32));
    options.fault_staging_buffers = static_cast<int>(std::clamp<uint64_t>(buffers / 8, least_in, 64));
  }
  const auto staging = static_cast<uint64_t>(options.evict_staging_buffers + options.fault_staging_buffers);
  options.storage_bytes = (buffers - std::min(buffers, staging)) * kChunkBytes;
  return options;
}

uint64_t AddressSpaceBytes(uint64_t device_total_bytes, uint64_t host_cap_bytes, uint64_t disk_bytes) {
  const uint64_t live = device_total_bytes + host_cap_bytes + std::min(disk_bytes, 1024 * kGiB);
  return std::bit_ceil(std::clamp(live * 8, 64 * kGiB, 4096 * kGiB));
}

}  // namespace spillway::integration
