// Checksum of a slot's bytes: XXH3 of 128 bits, seeded with the slot and with the use of the slot. It detects
// damaged bytes, and intact bytes of another slot or of an earlier use. It is kept in memory only. The store
// computes it on its completion workers at each write and each read. Pure; cannot fail.

#ifndef SPILLWAY_IO_STORE_CHECKSUM_H_
#define SPILLWAY_IO_STORE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

namespace spillway::io {

struct Checksum {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Checksum&, const Checksum&) = default;
};

// Seed for one use of one slot; `generation` counts the uses.
uint64_t ChecksumSeed(uint32_t directory, uint32_t index, uint32_t generation);

// Uses the widest vectors that the processor has; the result does not depend on them. Any thread.
Checksum ComputeChecksum(const void* data, size_t bytes, uint64_t seed);

// One function per compiled variant, for ComputeChecksum and for the test that compares the variants.
namespace checksum_internal {
Checksum ComputeBaseline(const void* data, size_t bytes, uint64_t seed);
#if defined(__x86_64__)
Checksum ComputeAvx2(const void* data, size_t bytes, uint64_t seed);  // needs a processor with AVX2
#endif
}  // namespace checksum_internal

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_CHECKSUM_H_
