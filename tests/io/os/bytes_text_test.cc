#include "io/os/bytes_text.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace spillway::os {
namespace {

TEST(BytesTextTest, ChoosesTheUnit) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.50 KiB");
  EXPECT_EQ(BytesText(uint64_t{3} << 40), "3.00 TiB");
}

}  // namespace
}  // namespace spillway::os
