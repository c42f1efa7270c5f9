#include "io/store/checksum.h"

#include <gtest/gtest.h>

#include <set>

#include "io/engine/aligned_buffer.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

TEST(ChecksumTest, DoesNotDependOnTheProcessor) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
  AlignedBuffer data(kSlotBytes);
  FillPattern(data.data(), data.size(), 5);
  for (const size_t bytes : {size_t{4096}, size_t{12288}, data.size()}) {
    EXPECT_EQ(checksum_internal::ComputeBaseline(data.data(), bytes, 77),
              checksum_internal::ComputeAvx2(data.data(), bytes, 77));
  }
#endif
}

TEST(ChecksumTest, TellsBytesPlacesAndUsesApart) {
  AlignedBuffer data(8192);
  FillPattern(data.data(), data.size(), 5);
  const uint64_t seed = ChecksumSeed(0, 0, 1);
  const Checksum right = ComputeChecksum(data.data(), data.size(), seed);
  EXPECT_EQ(ComputeChecksum(data.data(), data.size(), seed), right);
  for (size_t i = 0; i < data.size(); i += 97) {
    data.data()[i] ^= 1;
    EXPECT_FALSE(ComputeChecksum(data.data(), data.size(), seed) == right) << i;
    data.data()[i] ^= 1;
  }
  std::set<uint64_t> seeds;
  for (uint32_t directory = 0; directory < 8; ++directory) {
    for (uint32_t index = 0; index < 64; ++index) {
      for (uint32_t generation = 1; generation < 64; ++generation) {
        seeds.insert(ChecksumSeed(directory, index, generation));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 8u * 64u * 63u);
}

}  // namespace
}  // namespace spillway::io
