// The AVX2 variant, in a file of its own that is compiled with -mavx2. It must not include inline functions
// that other files share: the linker could choose this file's copy, which a processor without AVX2 cannot
// run.

#include "io/store/checksum.h"

#if defined(__x86_64__)
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace spillway::io {

Checksum checksum_internal::ComputeAvx2(const void* data, size_t bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(data, bytes, seed);
  return Checksum{hash.low64, hash.high64};
}

}  // namespace spillway::io
#endif
