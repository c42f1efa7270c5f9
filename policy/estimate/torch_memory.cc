#include "policy/estimate/torch_memory.h"

#include <algorithm>
#include <iterator>

namespace spillway::policy {
namespace {

// The constants' names in CUDACachingAllocator.cpp: kMinBlockSize, kSmallBuffer, kMinLargeAlloc,
// kLargeBuffer, kRoundLarge.
constexpr Bytes kUnit = 512;
constexpr Bytes kSmallSegment = 2 << 20, kSharedSegment = 20 << 20, kSegmentUnit = 2 << 20;
constexpr Bytes kOwnSegmentFrom = 10 << 20;

Bytes RoundUp(Bytes bytes, Bytes unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

TorchMemory::Address TorchMemory::NewSegment(Bytes rounded, bool small) {
  const Bytes bytes = small                       ? kSmallSegment
                      : rounded < kOwnSegmentFrom ? kSharedSegment
                                                  : RoundUp(rounded, kSegmentUnit);
  const Address address = next_;
  next_ += RoundUp(bytes, kSegmentUnit) + kSegmentUnit;
  reserved_ += bytes;
  blocks_[address] = {bytes, small, true, true};
  (small ? free_small_ : free_large_).insert({bytes, address});
  return address;
}

TorchMemory::Address TorchMemory::Allocate(Bytes bytes) {
  const Bytes rounded = std::max(kUnit, RoundUp(bytes, kUnit));
  const bool small = rounded <= kSmallBlock;
  FreeBlocks& free_blocks = small ? free_small_ : free_large_;
  auto found = free_blocks.lower_bound({rounded, 0});
  Address address;
  if (found == free_blocks.end()) {
    address = NewSegment(rounded, small);
    found = free_blocks.find({blocks_.at(address).bytes, address});
  } else {
    address = found->second;
  }
  free_blocks.erase(found);
  Block& block = blocks_.at(address);
  const Bytes rest = block.bytes - rounded;
  if (small ? rest >= kUnit : rest > kSmallBlock) {  // otherwise the block is handed out whole
    block.bytes = rounded;
    blocks_[address + rounded] = {rest, small, true, false};
    free_blocks.insert({rest, address + rounded});
  }
  block.free = false;
  allocated_ += block.bytes;
  peak_allocated_ = std::max(peak_allocated_, allocated_);
  return address;
}

void TorchMemory::Join(Address left, Address right) {
  blocks_.at(left).bytes += blocks_.at(right).bytes;
  blocks_.erase(right);
}

void TorchMemory::Free(Address address) {
  auto found = blocks_.find(address);
  allocated_ -= found->second.bytes;
  found->second.free = true;
  FreeBlocks& free_blocks = found->second.small ? free_small_ : free_large_;
  if (const auto next = std::next(found); next != blocks_.end() && !next->second.first && next->second.free) {
    free_blocks.erase({next->second.bytes, next->first});
    Join(address, next->first);
  }
  if (!found->second.first && std::prev(found)->second.free) {
    const auto before = std::prev(found);
    free_blocks.erase({before->second.bytes, before->first});
    address = before->first;
    Join(address, found->first);
  }
  free_blocks.insert({blocks_.at(address).bytes, address});
}

}  // namespace spillway::policy
