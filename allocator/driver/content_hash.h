// ContentHash: 128 bits by which the content of device memory is known again. The same value comes from the device
// (content_hash.cu), from the stand-in device's twin, and from HashOf on the host.
//
// Two contents of one length that differ in a single vector of 16 bytes never have the same hash: each vector goes
// through a permutation. Contents that differ in more have the same hash about once in 2^128 pairs, as far as the
// mixing is as good as random (tested: every bit in moves half of the bits out); at a billion comparisons a second it
// would take 10^22 years for one to be expected. It is no cryptographic hash: whoever builds equal sums on purpose
// can, and spoils nothing but his own job.

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
inline constexpr unsigned kMostBlocks = 512;  // and so partial sums of one hash
inline constexpr uint64_t kVectorBytes = 16;

// Thread blocks, each of which writes one partial sum, for `bytes`.
inline unsigned BlocksFor(uint64_t bytes) {
  constexpr uint64_t kVectorsOfABlock = kThreads * 8;
  const uint64_t blocks = (bytes / kVectorBytes + kVectorsOfABlock - 1) / kVectorsOfABlock;
  return static_cast<unsigned>(std::clamp<uint64_t>(blocks, 1, kMostBlocks));
}

// Adds the sum over vectors first, first + step, .. below `vectors` of `data` to *sum.
inline void Add(const void* data, uint64_t first, uint64_t vectors, uint64_t step, ContentHash* sum) {
  const auto* words = static_cast<const unsigned long long*>(data);
  unsigned long long low = 0;
  unsigned long long high = 0;
  for (uint64_t i = first; i < vectors; i += step)
    SpillwayMix(words[2 * i], words[2 * i + 1], i, &low, &high);
  sum->low += low;
  sum->high += high;
}

// The kernel (content_hash.cu) as PTX for compute capability kLeastCapability and all later ones, which the driver
// compiles. Made by NVRTC when the source changed, and kept in the tree: for as long as it works NVRTC takes over the
// process's SIGTERM and SIGINT, and ends it by exit (docs/decisions/0009-hash-as-ptx.md).
inline constexpr int kLeastCapability = 75;  // 7.5
const char* KernelPtx();

}  // namespace content_hash

// The hash of host memory: 16-byte aligned, `bytes` a multiple of 16. The reference for the others.
inline ContentHash HashOf(const void* data, uint64_t bytes) {
  ContentHash sum;
  content_hash::Add(data, 0, bytes / content_hash::kVectorBytes, 1, &sum);
  return sum;
}

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_CONTENT_HASH_H_
