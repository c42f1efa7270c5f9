#include "allocator/tier/pinned_slab.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

// mincore answers ENOMEM where nothing is mapped.
bool Mapped(std::byte* address) {
  unsigned char in_memory = 0;
  return mincore(address, 1, &in_memory) == 0 || errno != ENOMEM;
}

TEST(PinnedSlabTest, IsThereUntilItIsGivenBack) {
  const auto slab = PinSlab(CoreDevice::Driver(), CoreDevice::Context(), 100'000);
  ASSERT_TRUE(slab.ok()) << slab.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*slab) % 4096, 0u);
  std::memset(*slab, 1, 102'400);
  ASSERT_TRUE(Mapped(*slab));
  EXPECT_TRUE(UnpinSlab(CoreDevice::Driver(), CoreDevice::Context(), *slab, 100'000));
  EXPECT_FALSE(Mapped(*slab));
  EXPECT_FALSE(Mapped(*slab + 102'400)) << "the page behind it";
}

TEST(PinnedSlabTest, WhatTheDriverRefusesIsSaid) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_ERROR_OUT_OF_MEMORY; };
  const auto refused = PinSlab(&driver, CoreDevice::Context(), 4096);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.status().message()).find("pinning 4096 bytes"), std::string::npos);
  driver = *CoreDevice::Driver();
  driver.cuMemHostUnregister = [](void*) { return CUDA_ERROR_UNKNOWN; };
  const auto slab = PinSlab(&driver, CoreDevice::Context(), 4096);
  ASSERT_TRUE(slab.ok());
  EXPECT_FALSE(UnpinSlab(&driver, CoreDevice::Context(), *slab, 4096));
  EXPECT_TRUE(Mapped(*slab)) << "the device may still use it";
}

}  // namespace
}  // namespace spillway::allocator
