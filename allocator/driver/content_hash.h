// ContentHash: 128 bits by which the content of device memory is recognised. An eviction compares the hash of
// a block with that of its last copy and drops an unchanged block without a copy. The kernel on the device
// (content_hash.cu), its twin in simcuda and HashOf on the host give the same value. This header is
// arithmetic; any thread, and nothing in it can fail.
//
// Two contents of one length that differ in a single vector of 16 bytes never have the same hash: each vector
// goes through a permutation. Contents that differ in more have the same hash about once in 2^128 pairs, as
// far as the mixing is as good as random (tested: each bit of input changes half of the bits of output). At a
// billion comparisons a second, one is expected in 10^22 years. It is no cryptographic hash: equal sums can
// be built on purpose, and would spoil only the job that builds them.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_CONTENT_HASH_H_
#define SPILLWAY_ALLOCATOR_DRIVER_CONTENT_HASH_H_

#include <algorithm>
#include <cstdint>

namespace spillway::allocator {

struct ContentHash {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const ContentHash&, const ContentHash&) = default;
};

namespace content_hash {

#define SPILLWAY_HASH_FUNCTION inline
#define SPILLWAY_HASH_CODE(...) __VA_ARGS__
#include "allocator/driver/content_hash.def"  // IWYU pragma: keep
#undef SPILLWAY_HASH_CODE
#undef SPILLWAY_HASH_FUNCTION

inline constexpr const char* kKernelName = "spillway_content_hash";
inline constexpr unsigned kThreads = 256;     // of each thread block
inline constexpr unsigned kMostBlocks = 512;  // thread blocks, each with one partial sum of the hash
inline constexpr uint64_t kVectorBytes = 16;

// How many thread blocks hash `bytes`. Each writes one partial sum.
inline unsigned BlocksFor(uint64_t bytes) {
  constexpr uint64_t kVectorsOfABlock = kThreads * 8;
  const uint64_t blocks = (bytes / kVectorBytes + kVectorsOfABlock - 1) / kVectorsOfABlock;
  return static_cast<unsigned>(std::clamp<uint64_t>(blocks, 1, kMostBlocks));
}

// Adds the sum over vectors first, first + stride, .. below `vectors` of `data` to *sum.
inline void Add(const void* data, uint64_t first, uint64_t vectors, uint64_t stride, ContentHash* sum) {
  const auto* words = static_cast<const unsigned long long*>(data);
  unsigned long long low = 0;
  unsigned long long high = 0;
  for (uint64_t i = first; i < vectors; i += stride)
    SpillwayMix(words[2 * i], words[2 * i + 1], i, &low, &high);
  sum->low += low;
  sum->high += high;
}

// The kernel (content_hash.cu) as PTX for compute capability kLeastCapability and all later ones, which the
// driver compiles. It is made by NVRTC when the source has changed, and kept in the tree. The product does
// not use NVRTC, which takes over the process's SIGTERM and SIGINT while it works
// (docs/decisions/0009-hash-as-ptx.md).
inline constexpr int kLeastCapability = 75;  // 7.5
const char* KernelPtx();

}  // namespace content_hash

// The hash of host memory, which is 16-byte aligned; `bytes` is a multiple of 16. Reference for the kernel
// and its twin.
inline ContentHash HashOf(const void* data, uint64_t bytes) {
  ContentHash sum;
  content_hash::Add(data, 0, bytes / content_hash::kVectorBytes, 1, &sum);
  return sum;
}

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_CONTENT_HASH_H_
