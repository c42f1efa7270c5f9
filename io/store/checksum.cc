#include "io/store/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace spillway::io {

uint64_t ChecksumSeed(uint32_t directory, uint32_t index, uint32_t generation) {
  // Multiplication by odd constants keeps distinct triples apart in practice. It does not protect against an
  // attacker.
  uint64_t seed = uint64_t{index} << 32 | generation;
  seed = (seed ^ (seed >> 29)) * 0xbf58476d1ce4e5b9u;
  return seed ^ (uint64_t{directory} + 1) * 0x9e3779b97f4a7c15u;
}

Checksum checksum_internal::ComputeBaseline(const void* data, size_t bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(data, bytes, seed);
  return Checksum{hash.low64, hash.high64};
}

Checksum ComputeChecksum(const void* data, size_t bytes, uint64_t seed) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return checksum_internal::ComputeAvx2(data, bytes, seed);
#endif
  return checksum_internal::ComputeBaseline(data, bytes, seed);
}

}  // namespace spillway::io
