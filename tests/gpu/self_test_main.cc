// Ends with 2 where there is no device to test on, before any test.

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/gpu/gpu.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::printf("%s\n", spillway::gpu::Gpu::Get().Description().c_str());
  std::fflush(stdout);
  return RUN_ALL_TESTS();
}
