#include "integration/engine/sizing.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "allocator/memory/gpu_budget.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
// The staging of each direction that lets a drive work without pause: the 16 requests of 512 KiB that it has
// in progress, and half as much between drive and GPU. There is as much as for two drives at least, since
// slots come by blocks.
constexpr uint64_t kBuffersPerDrive = 6;

}  // namespace

DeviceBudget DefaultBudget(uint64_t free_bytes, uint64_t external_bytes) {
  const uint64_t reserve = std::min(free_bytes, std::clamp(free_bytes * 3 / 100, 32 * kMiB, kGiB));
  return {free_bytes - reserve + external_bytes, reserve};
}

DeviceBudget LimitedBudget(const DeviceBudget& budget, uint64_t most_bytes) {
  const uint64_t bytes = std::min(budget.bytes, most_bytes);
  return {bytes, std::min(budget.reserve_bytes, most_bytes - bytes)};
}

// Only the memory that a device had free has a reserve.
MemoryParts MemoryPartsOf(const DeviceBudget& budget, uint64_t device_bytes) {
  MemoryParts parts;
  const uint64_t process = std::min(budget.bytes, allocator::DefaultExternalShare(budget.bytes));
  parts.device_bytes = device_bytes;
  parts.blocks_bytes = (budget.bytes - process) / kChunkBytes * kChunkBytes;
  parts.process_bytes = budget.bytes - parts.blocks_bytes;
  parts.reserve_bytes = budget.reserve_bytes;
  const uint64_t jobs = budget.bytes + budget.reserve_bytes;
  if (budget.reserve_bytes > 0) parts.taken_bytes = device_bytes - std::min(device_bytes, jobs);
  return parts;
}

std::string Text(const MemoryParts& parts) {
  std::string text =
      absl::StrCat(os::BytesText(parts.budget_bytes()), " of ", os::BytesText(parts.device_bytes), " (",
                   os::BytesText(parts.blocks_bytes), " for blocks, ", os::BytesText(parts.process_bytes),
                   " for other memory of the process");
  if (parts.reserve_bytes > 0) absl::StrAppend(&text, "; a reserve of ", os::BytesText(parts.reserve_bytes));
  if (parts.taken_bytes > 0) absl::StrAppend(&text, ", ", os::BytesText(parts.taken_bytes), " in use before");
  return text + ")";
}

uint64_t DefaultHostCap(uint64_t available_bytes, int local_world_size) {
  return available_bytes / 4 / static_cast<uint64_t>(std::max(1, local_world_size));
}

uint64_t ShareOfRank(uint64_t bytes, int ranks) {
  if (ranks <= 1 || bytes == 0) return bytes;
  // 0 would mean something else: no cap, or no host tier.
  return std::max(kChunkBytes, bytes / static_cast<uint64_t>(ranks) / kChunkBytes * kChunkBytes);
}

allocator::HostPool::Options HostPoolOptions(uint64_t cap_bytes, size_t drives) {
  allocator::HostPool::Options options;
  options.buffer_bytes = kChunkBytes;
  options.evict_staging_buffers = 0;
  options.fault_staging_buffers = 0;
  const uint64_t buffers = cap_bytes / kChunkBytes;
  if (drives > 0) {
    // More staging keeps more transfers in progress, up to what fast drives and the copy engine can use.
    // Everything goes through it if there is no host tier: it is then as much as keeps the drives busy,
    // whatever the cap.
    const uint64_t busy = kBuffersPerDrive * std::max<uint64_t>(2, drives);
    const uint64_t least_out = buffers == 0 ? busy : std::clamp<uint64_t>(buffers / 8, 2, busy);
    const uint64_t least_in = buffers == 0 ? busy : std::clamp<uint64_t>(buffers / 4, 2, busy);
    options.evict_staging_buffers =
        static_cast<int>(std::clamp<uint64_t>(buffers / 16, least_out, std::max<uint64_t>(32, busy)));
    options.fault_staging_buffers =
        static_cast<int>(std::clamp<uint64_t>(buffers / 8, least_in, std::max<uint64_t>(64, busy)));
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
