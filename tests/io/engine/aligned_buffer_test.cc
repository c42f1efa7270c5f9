#include "io/engine/aligned_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace spillway::io {
namespace {

TEST(AlignedBufferTest, IsWholePagesAndAllOfThemAreItsOwn) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{4097}, size_t{1} << 20}) {
    AlignedBuffer buffer(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kPageBytes, 0u);
    EXPECT_EQ(buffer.size(), (bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
    std::memset(buffer.data(), 7, buffer.size());
    EXPECT_EQ(buffer.data()[buffer.size() - 1], 7);
  }
}

}  // namespace
}  // namespace spillway::io
