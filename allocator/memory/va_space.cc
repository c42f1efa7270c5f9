#include "allocator/memory/va_space.h"

#include <string>

#include "io/os/check.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kStride = uint64_t{1} << 32;

}  // namespace

VaSpace::VaSpace(uint64_t base, uint64_t bytes, uint64_t chunk_bytes)
    : base_(base), bytes_(bytes), chunk_bytes_(chunk_bytes) {
  // The first chunk stays free forever: a pointer just before the first block belongs to nobody else.
  free_.emplace(base_ + chunk_bytes_, bytes_ - chunk_bytes_);
  free_bytes_ = bytes_ - chunk_bytes_;
}

absl::StatusOr<uint64_t> VaSpace::Allocate(uint64_t chunks) {
  const uint64_t wanted = (chunks + 1) * chunk_bytes_;  // one guard chunk behind
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const uint64_t start = it->first;
    const uint64_t end = start + it->second;
    const uint64_t address = KeepOff(start, wanted);
    if (address > end || end - address < wanted) continue;
    free_.erase(it);
    if (address > start) free_.emplace(start, address - start);
    if (end > address + wanted) free_.emplace(address + wanted, end - address - wanted);
    free_bytes_ -= wanted;
    return address;
  }
  return absl::ResourceExhaustedError("no range of " + std::to_string(wanted) +
                                      " bytes is left in the device's " + std::to_string(bytes_) +
                                      " bytes of address space");
}

// A pointer into a chunk without a block counts for the blocks on both sides of that chunk. The chunks before
// and behind a multiple of 4 GiB must therefore have no block next to them: two chunks behind it stay free,
// and one before it, behind the guard chunk.
uint64_t VaSpace::KeepOff(uint64_t start, uint64_t bytes) const {
  const uint64_t before = chunk_bytes_;
  const uint64_t behind = 2 * chunk_bytes_;
  if (bytes > kStride - before - behind) return start;
  // The last multiple that could be too near.
  const uint64_t multiple = (start + bytes + before - 1) / kStride * kStride;
  return multiple + behind > start ? multiple + behind : start;
}

void VaSpace::Free(uint64_t address, uint64_t chunks) {
  uint64_t bytes = (chunks + 1) * chunk_bytes_;
  free_bytes_ += bytes;
  auto behind = free_.lower_bound(address);
  SPILLWAY_CHECK(behind == free_.end() || behind->first >= address + bytes);
  if (behind != free_.end() && behind->first == address + bytes) {
    bytes += behind->second;
    behind = free_.erase(behind);
  }
  if (behind != free_.begin()) {
    auto before = std::prev(behind);
    SPILLWAY_CHECK(before->first + before->second <= address);
    if (before->first + before->second == address) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(address, bytes);
}

void VaSpace::CheckInvariants() const {
  uint64_t sum = 0;
  uint64_t end = base_;
  for (const auto& [start, bytes] : free_) {
    SPILLWAY_CHECK(start > end && bytes > 0);
    end = start + bytes;
    sum += bytes;
  }
  SPILLWAY_CHECK(end <= base_ + bytes_ && sum == free_bytes_);
}

}  // namespace spillway::allocator
